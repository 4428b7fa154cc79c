-- What must not run twice.

-- +goose Up
UPDATE orders SET amount = amount * 100;

-- +goose Down
UPDATE orders SET amount = amount / 100;
