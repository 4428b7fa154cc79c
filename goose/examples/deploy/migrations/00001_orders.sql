-- +goose Up
CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, amount BIGINT NOT NULL);
INSERT INTO orders VALUES (1, 100), (2, 250);

-- +goose Down
DROP TABLE orders;
