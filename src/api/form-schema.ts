import { z } from 'zod'
import type { Json } from '#attestation/json/value.ts'
import { type Form, faultsOf, type ObjectForm, text } from '#enclave/protocol/form.ts'
import { described, faultIssue, type JsonSchema } from './schemas.ts'

/**
 * Returns a schema that checks values with the form. Its JSON Schema is only for the documentation.
 */
export function schemaOf<Value extends Json>(form: Form): z.ZodType<Value> {
  const schema = z.custom<Value>().check(({ value, issues }) => {
    for (const { loc, type, msg } of faultsOf(form, value)) issues.push(faultIssue(loc, type, msg))
  })
  return described(schema, () => jsonSchemaOfForm(form))
}

/** Both bounds are included. 1.0 counts as an integer. */
export function boundedInteger(bounds: { readonly min?: number; readonly max?: number }) {
  return schemaOf<number>({ kind: 'integer', ...bounds })
}

/** Returns the JSON Schema of a form, without the rules that involve several members. */
export function jsonSchemaOfForm(form: Form): JsonSchema {
  switch (form.kind) {
    case 'optional':
    case 'nullable':
      return orNull(jsonSchemaOfForm(form.form))
    case 'boolean':
      return { type: 'boolean' }
    case 'number':
      return { type: 'number', ...given({ minimum: form.min, maximum: form.max }) }
    case 'integer': {
      const { min = Number.MIN_SAFE_INTEGER, max = Number.MAX_SAFE_INTEGER } = form
      return { type: 'integer', minimum: min, maximum: max }
    }
    case 'text': {
      const { min: minLength, max: maxLength, pattern } = form
      return { type: 'string', ...given({ minLength, maxLength, pattern: pattern?.source }) }
    }
    case 'literal':
      return form.texts.length === 1
        ? { type: 'string', const: form.texts[0] }
        : { type: 'string', enum: form.texts }
    case 'list': {
      const { items, min: minItems, max: maxItems } = form
      return { type: 'array', items: jsonSchemaOfForm(items), ...given({ minItems, maxItems }) }
    }
    case 'numbers':
      return { type: 'object', additionalProperties: { type: 'number' } }
    case 'either':
      return eitherSchema([form.text, form.list, form.object].filter((one) => one !== undefined))
    case 'object':
      return form.byType === undefined ? membersSchema(form) : byTypeSchema(form, form.byType)
  }
}

function given(keywords: JsonSchema): JsonSchema {
  return Object.fromEntries(Object.entries(keywords).filter(([, value]) => value !== undefined))
}

/**
 * Adds null to a schema: as a second type if the schema has only a type, otherwise as an
 * alternative.
 */
function orNull(schema: JsonSchema): JsonSchema {
  const { type, additionalProperties: _, ...more } = schema
  return Array.isArray(type) || Object.keys(more).length === 0
    ? { ...schema, type: [type, 'null'].flat() }
    : { anyOf: [schema, { type: 'null' }] }
}

function eitherSchema(forms: readonly Form[]): JsonSchema {
  const schemas = forms.map(jsonSchemaOfForm)
  const { type: _, items, ...more } = Object.assign({}, ...schemas)
  return items !== undefined && Object.keys(more).length === 0
    ? { type: schemas.map(({ type }) => type), items }
    : { oneOf: schemas }
}

function membersSchema({ members }: ObjectForm): JsonSchema {
  const names = Object.keys(members).filter((name) => members[name]?.kind !== 'optional')
  return {
    type: 'object',
    properties: Object.fromEntries(
      Object.entries(members).map(([name, form]) => [name, jsonSchemaOfForm(form)]),
    ),
    ...(names.length === 0 ? {} : { required: names }),
    additionalProperties: {},
  }
}

/** Returns a schema that has one form for each known type, and one form for all other types. */
function byTypeSchema(
  { members: { type = text } }: ObjectForm,
  forms: Readonly<Record<string, Form>>,
): JsonSchema {
  const typed = (schema: JsonSchema) => ({
    type: 'object',
    properties: { type: schema },
    required: ['type'],
  })
  const known = Object.entries(forms).map(([name, form]) => ({
    allOf: [typed({ const: name }), jsonSchemaOfForm(form)],
  }))
  const other = { ...jsonSchemaOfForm(type), not: { enum: Object.keys(forms) } }
  return { oneOf: type.kind === 'literal' ? known : [...known, typed(other)] }
}
