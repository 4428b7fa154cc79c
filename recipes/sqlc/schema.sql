CREATE TABLE invoice (id bigint PRIMARY KEY, state text NOT NULL);
