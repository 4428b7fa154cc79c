DELETE FROM runs WHERE version = 2;
