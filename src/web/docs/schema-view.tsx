import type { JsonSchema } from './interface.ts'

/** A JSON Schema: what it is in a line, then its members, items and forms, each in turn. */
export function SchemaView({ schema }: { readonly schema: JsonSchema }) {
  const forms = [...listOf(schema.oneOf), ...listOf(schema.anyOf)].filter(
    (form) => form.type !== 'null',
  )
  return (
    <>
      <span>{describeInLine(schema)}</span>
      <Members schema={schema} />
      {isSchema(schema.items) && hasDepth(schema.items) && (
        <Forms label="Each" forms={[schema.items]} />
      )}
      {forms.length > 0 && <Forms label={forms.length > 1 ? 'One of' : 'Is'} forms={forms} />}
      <Forms label="All of" forms={listOf(schema.allOf)} />
    </>
  )
}

function Members({ schema: { properties, required } }: { readonly schema: JsonSchema }) {
  if (!isSchema(properties) || Object.keys(properties).length === 0) return null
  const needed: readonly unknown[] = Array.isArray(required) ? required : []
  return (
    <dl>
      {Object.entries(properties).map(([name, member]) => (
        <div key={name}>
          <dt>
            <code>{name}</code> {needed.includes(name) && <small>required</small>}
          </dt>
          <dd>{isSchema(member) && <SchemaView schema={member} />}</dd>
        </div>
      ))}
    </dl>
  )
}

function Forms({
  label,
  forms,
}: {
  readonly label: string
  readonly forms: readonly JsonSchema[]
}) {
  if (forms.length === 0) return null
  return (
    <dl>
      <dt>{label}</dt>
      {forms.map((form) => (
        <dd key={JSON.stringify(form)}>
          <SchemaView schema={form} />
        </dd>
      ))}
    </dl>
  )
}

function describeInLine(schema: JsonSchema): string {
  const words = [
    typeWords(schema),
    'const' in schema ? `always ${JSON.stringify(schema.const)}` : '',
    Array.isArray(schema.enum)
      ? schema.enum.map((value) => JSON.stringify(value)).join(' or ')
      : '',
    ...BOUNDS.map(([keyword, word]) =>
      keyword in schema ? `${word} ${String(schema[keyword])}` : '',
    ),
    'default' in schema ? `default ${JSON.stringify(schema.default)}` : '',
    typeof schema.description === 'string' ? `(${schema.description})` : '',
  ]
  return words.filter((word) => word !== '').join(', ')
}

function typeWords({ type, anyOf, items }: JsonSchema): string {
  const types = Array.isArray(type) ? type.join(' or ') : typeof type === 'string' ? type : ''
  const inner = isSchema(items) && !hasDepth(items) ? ` of ${describeInLine(items)}` : ''
  const orNull = listOf(anyOf).some((form) => form.type === 'null') ? 'may be null' : ''
  return [types + inner, orNull].filter((word) => word !== '').join(', ')
}

const BOUNDS = [
  ['minimum', 'from'],
  ['maximum', 'to'],
  ['minLength', 'characters from'],
  ['maxLength', 'characters up to'],
  ['minItems', 'items from'],
  ['maxItems', 'items up to'],
  ['pattern', 'of the form'],
  ['format', 'format'],
] as const

function hasDepth(schema: JsonSchema): boolean {
  return ['properties', 'items', 'oneOf', 'anyOf', 'allOf'].some((keyword) => keyword in schema)
}

function listOf(value: unknown): readonly JsonSchema[] {
  return Array.isArray(value) ? value.filter(isSchema) : []
}

function isSchema(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
