import { useState } from 'preact/hooks'
import type { JsonSchema } from '../../api/schemas.ts'
import { Prose } from './prose.tsx'

/** One line that describes the schema, and below it the folded members, items and forms. */
export function SchemaView({ schema }: { readonly schema: JsonSchema }) {
  const hasLine = describeInLine(schema) !== 'object' || typeof schema.description === 'string'
  return (
    <>
      {hasLine && (
        <p>
          <Line schema={schema} />
        </p>
      )}
      <Parts schema={schema} />
    </>
  )
}

/** The content may be long, so it is rendered only when the reader opens it. */
export function InnerSchema({ schema }: { readonly schema: JsonSchema }) {
  const [isOpen, setIsOpen] = useState(false)
  if (!hasParts(schema)) return <Line schema={schema} />
  return (
    <details open={isOpen} onToggle={({ currentTarget }) => setIsOpen(currentTarget.open)}>
      <summary>
        {describeInLine(schema) === '' && 'one of several forms '}
        <Line schema={schema} />
      </summary>
      {isOpen && <Parts schema={schema} />}
    </details>
  )
}

function Line({ schema }: { readonly schema: JsonSchema }) {
  const line = describeInLine(schema)
  const { description } = schema
  if (typeof description !== 'string') return <>{line}</>
  return (
    <>
      {line}
      {line !== '' && '. '}
      <Prose text={description} />
    </>
  )
}

function Parts({ schema }: { readonly schema: JsonSchema }) {
  const { schema: inner } = withoutNull(schema)
  const forms = formsOf(inner)
  return (
    <>
      <Members schema={inner} />
      {isSchema(inner.items) && hasParts(inner.items) && (
        <Forms label="Each" forms={[inner.items]} />
      )}
      <Forms label="One of" forms={forms} />
      <Forms label="All of" forms={listOf(inner.allOf)} />
    </>
  )
}

function Members({ schema: { properties, required } }: { readonly schema: JsonSchema }) {
  if (!isSchema(properties)) return null
  const needed: readonly unknown[] = Array.isArray(required) ? required : []
  return (
    <dl class="members">
      {Object.entries(properties).map(([name, member]) => (
        <div key={name}>
          <dt>
            <code>{name}</code> {needed.includes(name) && <small>required</small>}
          </dt>
          <dd>{isSchema(member) && <InnerSchema schema={member} />}</dd>
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
    <dl class="members">
      <div>
        <dt>{label}</dt>
        {forms.map((form) => (
          <dd key={JSON.stringify(form)}>
            <InnerSchema schema={form} />
          </dd>
        ))}
      </div>
    </dl>
  )
}

function describeInLine(given: JsonSchema): string {
  const { schema, isNullable } = withoutNull(given)
  const words = [
    typeWords(schema),
    'const' in schema ? `always ${JSON.stringify(schema.const)}` : '',
    Array.isArray(schema.enum)
      ? schema.enum.map((value) => JSON.stringify(value)).join(' or ')
      : '',
    ...RANGES.map(([least, most, unit]) => rangeWords(schema[least], schema[most], unit)),
    'pattern' in schema ? `of the form ${String(schema.pattern)}` : '',
    'format' in schema ? `format ${String(schema.format)}` : '',
    'default' in given ? `default ${JSON.stringify(given.default)}` : '',
    isNullable ? 'may be null' : '',
  ]
  return words.filter((word) => word !== '').join(', ')
}

function typeWords({ type, items }: JsonSchema): string {
  const types = Array.isArray(type) ? type.join(' or ') : typeof type === 'string' ? type : ''
  const inner = isSchema(items) && !hasParts(items) ? ` of ${describeInLine(items)}` : ''
  return types + inner
}

const RANGES = [
  ['minimum', 'maximum', ''],
  ['minLength', 'maxLength', 'characters'],
  ['minItems', 'maxItems', 'items'],
] as const

/** `1 to 512 characters`, or empty without limits. The bounds of safe integers are left out. */
function rangeWords(least: unknown, most: unknown, unit: string): string {
  const bounds = [least, most].map((bound) =>
    typeof bound === 'number' && Math.abs(bound) < Number.MAX_SAFE_INTEGER ? bound : null,
  )
  const [from, to] = bounds
  const words =
    from !== null && to !== null
      ? `${from} to ${to}`
      : from !== null
        ? `at least ${from}`
        : to !== null
          ? `at most ${to}`
          : ''
  return words === '' || unit === '' ? words : `${words} ${unit}`
}

/** If a schema allows only null or one other schema, returns the other schema. */
function withoutNull(schema: JsonSchema): {
  readonly schema: JsonSchema
  readonly isNullable: boolean
} {
  const forms = listOf(schema.anyOf)
  const others = forms.filter(({ type }) => type !== 'null')
  const [other] = others
  const isNullable = others.length < forms.length
  return isNullable && others.length === 1 && other !== undefined
    ? { schema: other, isNullable }
    : { schema, isNullable }
}

function formsOf(schema: JsonSchema): readonly JsonSchema[] {
  return [...listOf(schema.oneOf), ...listOf(schema.anyOf)].filter(({ type }) => type !== 'null')
}

/** True if a schema has parts that its one-line description does not show. */
function hasParts(given: JsonSchema): boolean {
  const { schema } = withoutNull(given)
  const { properties, items, allOf } = schema
  return (
    (isSchema(properties) && Object.keys(properties).length > 0) ||
    (isSchema(items) && hasParts(items)) ||
    [...formsOf(schema), ...listOf(allOf)].length > 0
  )
}

function listOf(value: unknown): readonly JsonSchema[] {
  return Array.isArray(value) ? value.filter(isSchema) : []
}

function isSchema(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
