package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/sqllock/sqllock/examples/internal/demo"
)

// audit looks whether every balance is the sum of its account's postings, and no
// sum is below zero.
func audit(ctx context.Context, db *demo.DB) (string, error) {
	rows, err := db.QueryContext(ctx, `
SELECT a.name, a.balance, (SELECT sum(p.amount) FROM posting AS p WHERE p.account = a.name)
FROM account AS a
ORDER BY a.name`)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	var lines []string
	right := true
	for rows.Next() {
		var name string
		var balance, postings int
		if err := rows.Scan(&name, &balance, &postings); err != nil {
			return "", err
		}
		lines = append(lines, fmt.Sprintf("%s: balance %d, postings %d", name, balance, postings))
		right = right && balance == postings && postings >= 0
	}
	if err := rows.Err(); err != nil {
		return "", err
	}
	text := strings.Join(lines, "; ")
	if !right {
		return "", demo.Wrong("%s", text)
	}
	return text, nil
}
