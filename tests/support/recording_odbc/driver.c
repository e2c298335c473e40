/* An ODBC driver without a database: it writes down what it is told, and answers out of a file.
 *
 * The connection string names both: Driver=…/librecording.so;Log=…;Answers=…
 *
 * The log has a line for each event, texts and values in hexadecimal:
 *     prepare SQL · direct SQL · execute · describe NUMBER · commit · rollback · disconnect
 *     bind NUMBER C-TYPE SQL-TYPE COLUMN-SIZE DIGITS INDICATOR VALUE        (as it stands when the statement is executed)
 *
 * The answers are blocks of lines, their fields separated by tabs:
 *     =<TAB>part of a statement<TAB>number of rows that it changes
 *     #<TAB>number of rows that a statement of a trigger changes: the server tells these numbers first, each as a result
 *     :<TAB>one letter for the type of each column: i bigint, w nvarchar(max), b bit, t datetime, x varbinary(max)<TAB>their
 *     names, with commas between them; without any all are named "column"
 *     a line for each row, in UTF-8; an empty field is NULL, and '' is an empty value
 *     !<TAB>SQLSTATE<TAB>the server's number<TAB>text: in the place of a row, an error; without any columns the statement fails
 * A statement is answered by the first block that has a part of its text and has not been used on any connection, else by the
 * last of these blocks, else by nothing. Where a statement ends with SELECT @@ROWCOUNT, a last result has the number of rows that it
 * changes, as SQL Server counts them: those of the statement itself, whatever triggers did.
 *
 * Only what pyodbc and the driver manager call is here. Rows are fetched one by one and their values by SQLGetData, a long one
 * in pieces. Prototypes and numbers are those of ODBC 3.8
 * (https://learn.microsoft.com/sql/odbc/reference/syntax/odbc-api-reference), written out so that no header is needed.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int16_t Return;
typedef uint16_t Wide; /* the driver manager's characters are UTF-16 */
typedef void *Handle;

enum { SUCCESS = 0, SUCCESS_WITH_INFO = 1, NEED_DATA = 99, ERROR = -1, NO_DATA = 100, NULL_DATA = -1, NTS = -3, DATA_AT_EXEC = -2 };
enum { ENVIRONMENT = 1, CONNECTION = 2, STATEMENT = 3 };
enum { C_LONG = 4, C_BIT = -7, C_SBIGINT = -25, C_WCHAR = -8, C_BINARY = -2, C_TIMESTAMP = 93 };
enum { MOST_PARAMETERS = 64, MOST_ANSWERS = 256, MOST_TRIGGERED = 8, LONGEST_LINE = 1 << 16 };

typedef struct {
    char *part, *types, *names, **rows;
    long changed, triggered[MOST_TRIGGERED];
    int row_count, used, triggered_count;
} Answer;

typedef struct Answers {
    char *path;
    Answer each[MOST_ANSWERS];
    int count;
    struct Answers *next;
} Answers;

typedef struct {
    FILE *log;
    Answers *answers;
} Connection;

typedef struct {
    int16_t c_type, sql_type, digits;
    uint64_t size;
    char *value;
    int64_t length, *indicator;
    char *sent; /* what came in pieces, after the statement was executed */
    size_t sent_length;
    int bound;
} Parameter;

typedef struct {
    Connection *connection;
    char *text;
    Parameter parameters[MOST_PARAMETERS + 1];
    int awaited; /* the parameter that is being sent in pieces */
    Answer *answer; /* the present result; the others follow in results */
    Answer *results[MOST_TRIGGERED + 2], counts[MOST_TRIGGERED + 1];
    int result, result_count;
    int row;
    int piece_of; /* the column that is fetched in pieces, and the bytes of it that were */
    int64_t piece_at;
    int32_t type_size; /* the answer to SQLGetTypeInfo */
    char state[6], said[256];
    int32_t number;
} Statement;

/* -- texts ------------------------------------------------------------------------------------ */

static char *utf8(const Wide *text, int64_t length) {
    int64_t count = 0;
    if (length == NTS) while (text[count]) count++;
    else count = length;
    char *made = calloc(count * 3 + 1, 1), *to = made;
    for (int64_t i = 0; i < count; i++) {
        uint32_t c = text[i];
        if (c >= 0xD800 && c < 0xDC00 && i + 1 < count) c = 0x10000 + ((c - 0xD800) << 10) + (text[++i] - 0xDC00);
        if (c < 0x80) *to++ = c;
        else if (c < 0x800) { *to++ = 0xC0 | c >> 6; *to++ = 0x80 | (c & 63); }
        else if (c < 0x10000) { *to++ = 0xE0 | c >> 12; *to++ = 0x80 | (c >> 6 & 63); *to++ = 0x80 | (c & 63); }
        else { *to++ = 0xF0 | c >> 18; *to++ = 0x80 | (c >> 12 & 63); *to++ = 0x80 | (c >> 6 & 63); *to++ = 0x80 | (c & 63); }
    }
    return made;
}

/* How long UTF-8 is as UTF-16, of which as much is written as there is room for, and a zero. */
static int64_t widen(const char *text, Wide *to, int64_t room) {
    int64_t length = 0;
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        int more = *at < 0x80 ? 0 : *at < 0xE0 ? 1 : *at < 0xF0 ? 2 : 3;
        uint32_t c = more ? *at & (0x3F >> more) : *at;
        for (at++; more; more--) c = c << 6 | (*at++ & 63);
        Wide pair[2] = {c, 0};
        if (c >= 0x10000) pair[0] = 0xD800 + ((c - 0x10000) >> 10), pair[1] = 0xDC00 + (c & 0x3FF);
        for (int i = 0; i < (c >= 0x10000 ? 2 : 1); i++, length++) if (length + 1 < room) to[length] = pair[i];
    }
    if (room > 0) to[length < room ? length : room - 1] = 0;
    return length;
}

static char *option(const char *text, const char *name) {
    const char *found = strstr(text, name);
    if (!found) return NULL;
    found += strlen(name);
    return *found == '{' ? strndup(found + 1, strcspn(found + 1, "}")) : strndup(found, strcspn(found, ";"));
}

static void hexadecimal(FILE *log, const void *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) fprintf(log, "%02x", ((const unsigned char *)bytes)[i]);
}

static void told(Statement *s, const char *event) {
    fprintf(s->connection->log, "%s ", event);
    hexadecimal(s->connection->log, s->text, strlen(s->text));
    fprintf(s->connection->log, "\n");
    fflush(s->connection->log);
}

/* -- answers ---------------------------------------------------------------------------------- */

static Answers *all_answers;

static void read_answers(Connection *connection, const char *path) {
    for (Answers *known = all_answers; known; known = known->next) {
        if (!strcmp(known->path, path)) { connection->answers = known; return; }
    }
    Answers *c = connection->answers = calloc(1, sizeof *c);
    c->path = strdup(path), c->next = all_answers, all_answers = c;
    FILE *file = fopen(path, "r");
    char *line = malloc(LONGEST_LINE);
    Answer *a = NULL;
    while (file && fgets(line, LONGEST_LINE, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "=\t", 2) && c->count < MOST_ANSWERS) {
            a = &c->each[c->count++];
            a->part = strdup(strtok(line + 2, "\t"));
            a->changed = atol(strtok(NULL, "\t"));
            a->types = a->names = "";
        } else if (a && !strncmp(line, "#\t", 2) && a->triggered_count < MOST_TRIGGERED) {
            a->triggered[a->triggered_count++] = atol(line + 2);
        } else if (a && !strncmp(line, ":\t", 2)) {
            a->types = strdup(strtok(line + 2, "\t"));
            char *names = strtok(NULL, "\t");
            if (names) a->names = strdup(names);
        } else if (a && (*a->types || !strncmp(line, "!\t", 2))) {
            a->rows = realloc(a->rows, (a->row_count + 1) * sizeof *a->rows);
            a->rows[a->row_count++] = strdup(line);
        }
    }
    free(line);
    if (file) fclose(file);
}

static Answer *answer_to(Statement *s) {
    Answers *c = s->connection->answers;
    Answer *found = NULL;
    for (int i = 0; c && i < c->count; i++) {
        if (!strstr(s->text, c->each[i].part)) continue;
        found = &c->each[i];
        if (!found->used) break;
    }
    if (found) found->used = 1;
    return found;
}

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && !strcmp(text + length - wanted, end);
}

/* The results of a statement, in the order in which SQL Server sends them. */
static void find_answer(Statement *s) {
    Answer *own = answer_to(s);
    s->result = s->result_count = 0;
    for (int i = 0; own && i < own->triggered_count; i++) {
        s->counts[i] = (Answer){.types = "", .names = "", .changed = own->triggered[i]};
        s->results[s->result_count++] = &s->counts[i];
    }
    if (own) s->results[s->result_count++] = own;
    if (ends_with(s->text, "SELECT @@ROWCOUNT")) {
        char *number = calloc(24, 1);
        snprintf(number, 24, "%ld", own && own->changed > 0 ? own->changed : 0);
        Answer *last = &s->counts[MOST_TRIGGERED];
        *last = (Answer){.types = "i", .names = "", .changed = -1, .rows = calloc(1, sizeof(char *)), .row_count = 1};
        last->rows[0] = number;
        s->results[s->result_count++] = last;
    }
    s->answer = s->result_count ? s->results[0] : NULL;
    s->row = -1;
}

/* -- parameters ------------------------------------------------------------------------------- */

/* A ? in a text, a name or a comment is none. */
static int count_parameters(const char *text) {
    int count = 0;
    for (const char *at = text; *at; at++) {
        char end = *at == '\'' ? '\'' : *at == '"' ? '"' : *at == '[' ? ']' : 0;
        if (end) { for (at++; *at && *at != end; at++); if (!*at) break; }
        else if (at[0] == '-' && at[1] == '-') { at += strcspn(at, "\n"); if (!*at) break; }
        else if (*at == '?') count++;
    }
    return count;
}

static int at_execution(const Parameter *p) {
    return p->bound && p->indicator && (*p->indicator == DATA_AT_EXEC || *p->indicator <= -100);
}

static size_t fixed_length(int16_t c_type) {
    switch (c_type) {
    case C_LONG: return 4;
    case C_SBIGINT: return 8;
    case C_BIT: return 1;
    case C_TIMESTAMP: return 16;
    default: return 0;
    }
}

static void say(Statement *s, const char *state, int32_t number, const char *text) {
    snprintf(s->state, sizeof s->state, "%s", state);
    snprintf(s->said, sizeof s->said, "%s", text);
    s->number = number;
}

static Return refuse(Statement *s, const char *row) {
    char *line = strdup(row + 2), *state = strtok(line, "\t"), *number = strtok(NULL, "\t");
    say(s, state, atol(number), strtok(NULL, "\t"));
    free(line);
    return ERROR;
}

static Return finish(Statement *s) {
    FILE *log = s->connection->log;
    for (int i = 1; i <= MOST_PARAMETERS; i++) {
        Parameter *p = &s->parameters[i];
        if (!p->bound) continue;
        int64_t indicator = p->indicator ? *p->indicator : NTS;
        const char *value = at_execution(p) ? p->sent : p->value;
        size_t length = at_execution(p) ? p->sent_length
                        : indicator == NULL_DATA ? 0
                        : fixed_length(p->c_type) ? fixed_length(p->c_type)
                        : indicator >= 0 ? (size_t)indicator : 0;
        fprintf(log, "bind %d %d %d %llu %d %lld ", i, p->c_type, p->sql_type, (unsigned long long)p->size, p->digits,
                (long long)(at_execution(p) ? DATA_AT_EXEC : indicator == NULL_DATA ? NULL_DATA : (int64_t)length));
        hexadecimal(log, value, length);
        fprintf(log, "\n");
        free(p->sent);
        p->sent = NULL;
        p->sent_length = 0;
    }
    fprintf(log, "execute\n");
    fflush(log);
    find_answer(s);
    if (s->answer && !*s->answer->types && s->answer->row_count) return refuse(s, s->answer->rows[0]);
    return SUCCESS;
}

/* -- the functions of ODBC -------------------------------------------------------------------- */

Return SQLAllocHandle(int16_t type, Handle input, Handle *output) {
    if (type == STATEMENT) {
        Statement *s = calloc(1, sizeof *s);
        s->connection = input;
        s->row = -1;
        *output = s;
    } else {
        *output = calloc(1, sizeof(Connection));
    }
    return SUCCESS;
}

Return SQLFreeHandle(int16_t type, Handle handle) {
    if (type == STATEMENT) free(((Statement *)handle)->text);
    free(handle);
    return SUCCESS;
}

Return SQLDriverConnectW(Handle handle, Handle window, Wide *given, int16_t given_length, Wide *out, int16_t room,
                         int16_t *out_length, uint16_t completion) {
    (void)window, (void)completion;
    Connection *c = handle;
    char *text = utf8(given, given_length), *log = option(text, "Log="), *answers = option(text, "Answers=");
    c->log = log ? fopen(log, "a") : NULL;
    if (!c->log) return ERROR;
    if (answers) read_answers(c, answers);
    if (out && room > 0) out[0] = 0;
    if (out_length) *out_length = 0;
    free(text), free(log), free(answers);
    return SUCCESS;
}

Return SQLDisconnect(Handle handle) {
    fprintf(((Connection *)handle)->log, "disconnect\n");
    fclose(((Connection *)handle)->log);
    return SUCCESS;
}

Return SQLEndTran(int16_t type, Handle handle, int16_t completion) {
    if (type == CONNECTION) {
        fprintf(((Connection *)handle)->log, completion ? "rollback\n" : "commit\n");
        fflush(((Connection *)handle)->log);
    }
    return SUCCESS;
}

Return SQLSetEnvAttr(Handle h, int32_t a, void *v, int32_t l) { (void)h, (void)a, (void)v, (void)l; return SUCCESS; }
Return SQLSetConnectAttrW(Handle h, int32_t a, void *v, int32_t l) { return SQLSetEnvAttr(h, a, v, l); }

Return SQLSetStmtAttrW(Handle h, int32_t a, void *v, int32_t l) { return SQLSetEnvAttr(h, a, v, l); }

Return SQLGetStmtAttrW(Handle h, int32_t attribute, void *value, int32_t room, int32_t *length) {
    /* The driver manager asks for the four descriptors of a statement: any address will do. */
    (void)attribute, (void)room;
    if (value) *(Handle *)value = h;
    if (length) *length = sizeof(Handle);
    return SUCCESS;
}

Return SQLGetInfoW(Handle h, uint16_t what, void *value, int16_t room, int16_t *length) {
    (void)h;
    const char *text = what == 77 /* SQL_DRIVER_ODBC_VER */ ? "03.80"
                       : what == 10002 /* SQL_DESCRIBE_PARAMETER */ ? "Y"
                       : what == 111 /* SQL_NEED_LONG_DATA_LEN */ ? "N"
                       : what == 6 /* SQL_DRIVER_NAME */ ? "librecording.so"
                       : what == 17 /* SQL_DBMS_NAME */ ? "Microsoft SQL Server" : NULL;
    if (text) {
        int64_t characters = widen(text, value, value ? room / 2 : 0);
        if (length) *length = characters * 2;
    } else {
        if (value) *(uint16_t *)value = 2; /* SQL_CB_PRESERVE: a commit leaves cursors as they are */
        if (length) *length = 2;
    }
    return SUCCESS;
}

/* How long values may be before they are sent in pieces: as Microsoft's driver answers. */
Return SQLGetTypeInfoW(Handle handle, int16_t type) {
    Statement *s = handle;
    s->type_size = type == -9 || type == -8 ? 4000 : type == 93 ? 27 : 8000;
    s->answer = NULL;
    s->row = -1;
    return SUCCESS;
}

Return SQLPrepareW(Handle handle, Wide *text, int32_t length) {
    Statement *s = handle;
    free(s->text);
    s->text = utf8(text, length);
    s->type_size = 0;
    told(s, "prepare");
    return SUCCESS;
}

Return SQLExecDirectW(Handle handle, Wide *text, int32_t length) {
    Statement *s = handle;
    free(s->text);
    s->text = utf8(text, length);
    s->type_size = 0;
    told(s, "direct");
    return finish(s);
}

Return SQLNumParams(Handle handle, int16_t *count) {
    *count = count_parameters(((Statement *)handle)->text);
    return SUCCESS;
}

/* A round trip to a real server, so it is written down that it was asked. */
Return SQLDescribeParam(Handle handle, uint16_t number, int16_t *type, uint64_t *size, int16_t *digits, int16_t *nullable) {
    (void)type, (void)size, (void)digits, (void)nullable;
    fprintf(((Statement *)handle)->connection->log, "describe %d\n", number);
    return ERROR;
}

Return SQLBindParameter(Handle handle, uint16_t number, int16_t direction, int16_t c_type, int16_t sql_type, uint64_t size,
                        int16_t digits, void *value, int64_t length, int64_t *indicator) {
    (void)direction;
    if (number < 1 || number > MOST_PARAMETERS) return ERROR;
    ((Statement *)handle)->parameters[number] = (Parameter){
        .c_type = c_type, .sql_type = sql_type, .size = size, .digits = digits, .value = value, .length = length,
        .indicator = indicator, .bound = 1};
    return SUCCESS;
}

Return SQLParamData(Handle handle, void **token) {
    Statement *s = handle;
    for (s->awaited++; s->awaited <= MOST_PARAMETERS; s->awaited++) {
        if (at_execution(&s->parameters[s->awaited])) {
            *token = s->parameters[s->awaited].value;
            return NEED_DATA;
        }
    }
    return finish(s);
}

Return SQLPutData(Handle handle, void *data, int64_t length) {
    Parameter *p = &((Statement *)handle)->parameters[((Statement *)handle)->awaited];
    p->sent = realloc(p->sent, p->sent_length + length + 1);
    memcpy(p->sent + p->sent_length, data, length);
    p->sent_length += length;
    return SUCCESS;
}

Return SQLExecute(Handle handle) {
    Statement *s = handle;
    s->awaited = 0;
    for (int i = 1; i <= MOST_PARAMETERS; i++) {
        if (at_execution(&s->parameters[i])) return NEED_DATA;
    }
    return finish(s);
}

Return SQLRowCount(Handle handle, int64_t *count) {
    Answer *a = ((Statement *)handle)->answer;
    *count = a ? a->changed : 0;
    return SUCCESS;
}

Return SQLNumResultCols(Handle handle, int16_t *count) {
    Answer *a = ((Statement *)handle)->answer;
    *count = a ? strlen(a->types) : 0;
    return SUCCESS;
}

static char *name_of(Statement *s, int number) {
    const char *at = s->answer->names;
    if (!*at) return strdup("column");
    for (int i = 1; i < number && *at; i++) at += strcspn(at, ",") + 1;
    return strndup(at, strcspn(at, ","));
}

static int type_of(Statement *s, int number) {
    char letter = s->answer->types[number - 1];
    return letter == 'i' ? -5 : letter == 'b' ? -7 : letter == 't' ? 93 : letter == 'x' ? -3 : -9;
}

static int size_of(Statement *s, int number) {
    char letter = s->answer->types[number - 1];
    return letter == 'i' ? 19 : letter == 'b' ? 1 : letter == 't' ? 23 : 0; /* which is (max) */
}

Return SQLDescribeColW(Handle handle, uint16_t number, Wide *name, int16_t room, int16_t *name_length, int16_t *type,
                       uint64_t *size, int16_t *digits, int16_t *nullable) {
    char *found = name_of(handle, number);
    int64_t length = widen(found, name, name ? room : 0);
    free(found);
    if (name_length) *name_length = length;
    if (type) *type = type_of(handle, number);
    if (size) *size = size_of(handle, number);
    if (digits) *digits = type_of(handle, number) == 93 ? 3 : 0;
    if (nullable) *nullable = 1;
    return SUCCESS;
}

Return SQLColAttributeW(Handle handle, uint16_t number, uint16_t field, void *text, int16_t room, int16_t *length,
                        int64_t *value) {
    char *name = field == 1011 || field == 1 || field == 18 /* SQL_DESC_NAME, as before ODBC 3, SQL_DESC_LABEL */
                     ? name_of(handle, number) : strdup("");
    int64_t characters = widen(name, text, text ? room / 2 : 0);
    free(name);
    if (length) *length = characters * 2;
    if (value) *value = field == 2 /* SQL_DESC_CONCISE_TYPE */ ? type_of(handle, number)
                        : field == 1003 || field == 1013 /* SQL_DESC_LENGTH, in octets */ ? size_of(handle, number)
                        : field == 1005 /* SQL_DESC_PRECISION */ ? (type_of(handle, number) == 93 ? 3 : 0) : 0;
    return SUCCESS;
}

static Return timestamp(const char *field, void *value) {
    int16_t *parts = value;
    int year, month, day, hour, minute, second;
    char decimals[10] = "";
    sscanf(field, "%d-%d-%dT%d:%d:%d.%9[0-9]", &year, &month, &day, &hour, &minute, &second, decimals);
    parts[0] = year, parts[1] = month, parts[2] = day, parts[3] = hour, parts[4] = minute, parts[5] = second;
    int32_t billionths = atol(decimals);
    for (size_t i = strlen(decimals); i < 9; i++) billionths *= 10;
    ((int32_t *)value)[3] = billionths;
    return SUCCESS;
}

/* A field of the row that is fetched, from a byte of it on; the indicator says how long it is from there. */
static Return get(Statement *s, int number, int16_t c_type, void *value, int64_t room, int64_t *indicator, int64_t from) {
    int64_t unused, *length = indicator ? indicator : &unused;
    const char *at = s->answer->rows[s->row];
    for (int i = 1; i < number && *at; i++) at += strcspn(at, "\t") + (at[strcspn(at, "\t")] == '\t');
    char *field = strndup(at, strcspn(at, "\t"));
    int is_null = !*field, cut = 0;
    if (!strcmp(field, "''")) *field = 0;
    *length = is_null ? NULL_DATA : (int64_t)fixed_length(c_type);
    if (is_null) { /* nothing to write */ }
    else if (c_type == C_SBIGINT) *(int64_t *)value = atoll(field);
    else if (c_type == C_LONG) *(int32_t *)value = atol(field);
    else if (c_type == C_BIT) *(char *)value = *field == '1';
    else if (c_type == C_TIMESTAMP || c_type == 11) *length = 16, timestamp(field, value);
    else if (c_type == C_WCHAR || s->answer->types[number - 1] == 'w') {
        int64_t characters = widen(field, NULL, 0), end = c_type == C_WCHAR ? 2 : 0, kept;
        Wide *wide = calloc(characters + 1, sizeof *wide);
        widen(field, wide, characters + 1);
        *length = characters * 2 - from;
        cut = *length > room - end;
        kept = cut ? (room - end) & ~1 : *length;
        memcpy(value, (char *)wide + from, kept);
        if (end) ((Wide *)value)[kept / 2] = 0;
        free(wide);
    } else {
        *length = strlen(field) - from;
        cut = *length > room;
        memcpy(value, field + from, cut ? room : *length);
    }
    free(field);
    if (cut) say(s, "01004", 0, "[recording] String data, right truncation");
    return cut ? SUCCESS_WITH_INFO : SUCCESS;
}

Return SQLFetch(Handle handle) {
    Statement *s = handle;
    int rows = s->type_size ? 1 : s->answer ? s->answer->row_count : 0;
    s->piece_of = 0;
    if (s->row + 1 >= rows) return NO_DATA;
    s->row++;
    if (!s->type_size && !strncmp(s->answer->rows[s->row], "!\t", 2)) return refuse(s, s->answer->rows[s->row]);
    return SUCCESS;
}

Return SQLGetData(Handle handle, uint16_t number, int16_t c_type, void *value, int64_t room, int64_t *indicator) {
    Statement *s = handle;
    if (s->type_size) {
        *(int32_t *)value = s->type_size;
        if (indicator) *indicator = 4;
        return SUCCESS;
    }
    if (s->piece_of != number) s->piece_of = number, s->piece_at = 0;
    Return result = get(s, number, c_type, value, room, indicator, s->piece_at);
    if (result) s->piece_at += c_type == C_WCHAR ? (room - 2) & ~1 : room;
    return result;
}

Return SQLMoreResults(Handle handle) {
    Statement *s = handle;
    s->row = -1;
    s->answer = ++s->result < s->result_count ? s->results[s->result] : NULL;
    return s->answer ? SUCCESS : NO_DATA;
}

Return SQLFreeStmt(Handle handle, uint16_t what) {
    Statement *s = handle;
    if (what == 3 /* SQL_RESET_PARAMS */) memset(s->parameters, 0, sizeof s->parameters);
    if (what == 0 /* SQL_CLOSE */) s->answer = NULL, s->type_size = 0, s->row = -1;
    return SUCCESS;
}

Return SQLCloseCursor(Handle handle) { return SQLFreeStmt(handle, 0); }
Return SQLCancel(Handle handle) { (void)handle; return SUCCESS; }

Return SQLGetDiagRecW(int16_t type, Handle handle, int16_t record, Wide *state, int32_t *number, Wide *text, int16_t room,
                      int16_t *length) {
    Statement *s = type == STATEMENT && *((Statement *)handle)->state ? handle : NULL;
    if (record > 1) return NO_DATA;
    if (state) widen(s ? s->state : "HY000", state, 6);
    if (number) *number = s ? s->number : 0;
    int64_t characters = widen(s ? s->said : "[recording] refused", text, text ? room : 0);
    if (length) *length = characters;
    return SUCCESS;
}

/* The driver manager takes errors only of a driver that has this too; what it asks here is where they come from. */
Return SQLGetDiagFieldW(int16_t type, Handle handle, int16_t record, int16_t field, void *value, int16_t room, int16_t *length) {
    (void)type, (void)handle, (void)record, (void)field, (void)value, (void)room, (void)length;
    return NO_DATA;
}
