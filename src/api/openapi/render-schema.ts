import type { JsonSchema } from '../described.ts'

/** A JSON Schema as HTML: what it is in a line, then its members, items and forms, each in turn. */
export function renderSchema(schema: JsonSchema): string {
  const line = `<span>${escapeHtml(describeInLine(schema))}</span>`
  const forms = [...listOf(schema.oneOf), ...listOf(schema.anyOf)].filter((form) => form.type !== 'null')
  return [
    line,
    renderMembers(schema),
    isSchema(schema.items) && hasDepth(schema.items)
      ? `<dl><dt>Each</dt><dd>${renderSchema(schema.items)}</dd></dl>`
      : '',
    renderForms(forms.length > 1 ? 'One of' : 'Is', forms),
    renderForms('All of', listOf(schema.allOf)),
  ].join('')
}

/** Text as HTML, also in an attribute in double quotes. */
export function escapeHtml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
}

function renderForms(label: string, forms: readonly JsonSchema[]): string {
  if (forms.length === 0) return ''
  return `<dl><dt>${label}</dt>${forms.map((form) => `<dd>${renderSchema(form)}</dd>`).join('')}</dl>`
}

function renderMembers({ properties, required }: JsonSchema): string {
  if (!isSchema(properties) || Object.keys(properties).length === 0) return ''
  const needed: readonly unknown[] = Array.isArray(required) ? required : []
  const members = Object.entries(properties).map(([name, member]) => {
    const mark = needed.includes(name) ? ' <small>required</small>' : ''
    return `<dt><code>${escapeHtml(name)}</code>${mark}</dt><dd>${isSchema(member) ? renderSchema(member) : ''}</dd>`
  })
  return `<dl>${members.join('')}</dl>`
}

function describeInLine(schema: JsonSchema): string {
  const words = [
    typeWords(schema),
    'const' in schema ? `always ${JSON.stringify(schema.const)}` : '',
    Array.isArray(schema.enum) ? schema.enum.map((value) => JSON.stringify(value)).join(' or ') : '',
    ...BOUNDS.map(([keyword, word]) => (keyword in schema ? `${word} ${String(schema[keyword])}` : '')),
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
