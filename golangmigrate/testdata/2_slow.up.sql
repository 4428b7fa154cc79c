SELECT pg_sleep(0.5);
INSERT INTO runs VALUES (2);
