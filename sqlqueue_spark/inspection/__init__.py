"""What is looked at before and while a queue is used: findings, facts about the server, and the checks of the doctor."""
