package output_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/internal/output"
)

func TestATableIsAlignedAThousandRowsAtATime(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	table := output.NewTable(&text, "NAME", "MODE", "TOKEN")
	for i := range 3000 {
		name := "n" + strconv.Itoa(i)
		switch {
		case i == 1:
			name = "日本語"
		case i == 2:
			name = strings.Repeat("x", 255)
		case i > 2500:
			name += strings.Repeat("y", 20)
		}
		table.Add(name, "unique", strconv.Itoa(i))
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	if len(lines) != 3001 || !strings.HasPrefix(lines[0], "NAME ") {
		t.Fatalf("%d lines, the first is %q", len(lines), lines[0])
	}
	columns := make(map[int]int) // the column where the second column begins
	for i, l := range lines[1:] {
		if i != 2 {
			before, _, _ := strings.Cut(l, "unique")
			columns[output.Columns(before)]++
		}
	}
	if len(columns) != 1 { // the long name has widened the first thousand to the bound; later ones are not narrower
		t.Errorf("the second column begins at %v", columns)
	}
	if at := output.Columns(strings.SplitN(lines[1], "unique", 2)[0]); at != output.WidestColumn+2 {
		t.Errorf("one long name has moved the others to column %d", at)
	}
}
