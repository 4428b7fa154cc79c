// Package schema is what ent generates the package ent from.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// Invoice is an entity.
type Invoice struct{ ent.Schema }

// Fields implements ent.Interface.
func (Invoice) Fields() []ent.Field {
	return []ent.Field{field.Int64("id"), field.String("state")}
}

// Annotations implements ent.Interface.
func (Invoice) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "invoice"}}
}
