USE [shop];
