import { createHash } from 'node:crypto'
import type { JsonSchema } from '../schemas.ts'

/** A page, and the policy that it is to be served with. */
export type ReferencePage = { readonly html: string; readonly contentSecurityPolicy: string }

/**
 * The reference page of an OpenAPI document made by createDocument: one file without scripts that
 * loads nothing, so it works wherever it is opened, and its policy allows nothing but its own
 * style.
 */
export function renderPage(document: JsonSchema): ReferencePage {
  const { info, paths, components } = document as unknown as ReferencedDocument
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      path,
      method: method.toUpperCase(),
      ...operation,
    })),
  )
  const byTag = [...Map.groupBy(operations, ({ tags }) => tags[0] ?? '')]
  const styleHash = createHash('sha256').update(STYLE).digest('base64')
  const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(info.title)}: API reference</title>
<style>${STYLE}</style>
</head>
<body>
<nav aria-label="Operations">${byTag.map(([tag, all]) => renderIndex(tag, all)).join('')}</nav>
<main>
<h1>${escapeHtml(info.title)} <small>${escapeHtml(info.version)}</small></h1>
<p>${escapeHtml(info.description)}</p>
<p>The same, for machines: <a href="/openapi.json">openapi.json</a> (OpenAPI 3.1).
Keys are sent as <code>Authorization: Bearer &lt;API_KEY&gt;</code>.</p>
${byTag.map(([tag, all]) => `<h2>${escapeHtml(tag)}</h2>${all.map((one) => renderOperation(one, components.schemas)).join('')}`).join('\n')}
</main>
</body>
</html>
`
  return {
    html,
    contentSecurityPolicy: `default-src 'none'; style-src 'sha256-${styleHash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
  }
}

type Content = Readonly<Record<string, { readonly schema: JsonSchema }>>

type DocumentedOperation = {
  readonly operationId: string
  readonly summary: string
  readonly description?: string
  readonly tags: readonly string[]
  readonly security: readonly Readonly<Record<string, readonly string[]>>[]
  readonly parameters?: readonly {
    readonly name: string
    readonly in: string
    readonly required: boolean
    readonly schema: JsonSchema
  }[]
  readonly requestBody?: { readonly content: Content }
  readonly responses: Readonly<
    Record<string, { readonly description: string; readonly content: Content }>
  >
}

type ReferencedDocument = {
  readonly info: { readonly title: string; readonly description: string; readonly version: string }
  readonly paths: Readonly<Record<string, Readonly<Record<string, DocumentedOperation>>>>
  readonly components: { readonly schemas: Readonly<Record<string, JsonSchema>> }
}

type PlacedOperation = DocumentedOperation & { readonly path: string; readonly method: string }
type Schemas = ReferencedDocument['components']['schemas']

function renderIndex(tag: string, operations: readonly PlacedOperation[]): string {
  const items = operations.map(
    ({ operationId, method, path }) =>
      `<li><a href="#${escapeHtml(operationId)}"><b>${method}</b> ${escapeHtml(path)}</a></li>`,
  )
  return `<h2>${escapeHtml(tag)}</h2><ul>${items.join('')}</ul>`
}

function renderOperation(operation: PlacedOperation, schemas: Schemas): string {
  const { operationId, method, path, summary, description, requestBody, responses } = operation
  const parts = [
    `<h3><b>${method}</b> <code>${escapeHtml(path)}</code></h3>`,
    `<p>${escapeHtml(summary)}. ${escapeHtml(describeKey(operation))}</p>`,
    description === undefined ? '' : `<p>${escapeHtml(description)}</p>`,
    renderParameters(operation),
    requestBody === undefined
      ? ''
      : `<h4>Request</h4>${renderContent(requestBody.content, schemas)}`,
    '<h4>Responses</h4>',
    ...Object.entries(responses).map(([status, response]) =>
      renderResponse(status, response, schemas),
    ),
  ]
  return `<section id="${escapeHtml(operationId)}">${parts.join('\n')}</section>`
}

function describeKey({ security: [need] }: PlacedOperation): string {
  if (need === undefined) return 'Needs no key.'
  const scopes = Object.values(need).flat()
  return scopes.length > 0 ? `Needs a key with the scope ${scopes.join(', ')}.` : 'Needs a key.'
}

function renderParameters({ parameters = [] }: PlacedOperation): string {
  if (parameters.length === 0) return ''
  const rows = parameters.map(
    ({ name, in: place, required, schema }) =>
      `<tr><td><code>${escapeHtml(name)}</code></td><td>${place}${required ? ', required' : ''}</td><td>${renderSchema(schema)}</td></tr>`,
  )
  return `<h4>Parameters</h4><table>${rows.join('')}</table>`
}

/** Errors all look alike: only their codes are said. */
function renderResponse(
  status: string,
  { description, content }: { readonly description: string; readonly content: Content },
  schemas: Schemas,
): string {
  const shown = status === '200' ? renderContent(content, schemas) : ''
  return `<p><b>${escapeHtml(status)}</b> ${escapeHtml(description)}</p>${shown}`
}

function renderContent(content: Content, schemas: Schemas): string {
  return Object.entries(content)
    .map(([type, { schema }]) => {
      const name = String(schema.$ref).replace('#/components/schemas/', '')
      const body = renderSchema(schemas[name] ?? schema)
      return `<details><summary><code>${escapeHtml(type)}</code> ${escapeHtml(name)}</summary>${body}</details>`
    })
    .join('')
}

/** A JSON Schema as HTML: what it is in a line, then its members, items and forms, each in turn. */
function renderSchema(schema: JsonSchema): string {
  const line = `<span>${escapeHtml(describeInLine(schema))}</span>`
  const forms = [...listOf(schema.oneOf), ...listOf(schema.anyOf)].filter(
    (form) => form.type !== 'null',
  )
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
function escapeHtml(text: string): string {
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

const STYLE = `
:root { color-scheme: light dark; --line: #8885; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; display: grid; grid-template-columns: minmax(16rem, 24rem) 1fr; }
nav { border-right: 1px solid var(--line); height: 100vh; overflow: auto; position: sticky; top: 0; padding: 1rem; box-sizing: border-box; font-size: 0.8rem; }
nav ul { list-style: none; margin: 0; padding: 0; overflow-wrap: anywhere; }
nav h2 { font-size: 0.9rem; margin: 1rem 0 0.25rem; }
main { padding: 1rem 2rem; max-width: 60rem; min-width: 0; }
section { border-top: 1px solid var(--line); padding-bottom: 1rem; }
section:target { outline: 2px solid; outline-offset: 0.5rem; }
h3 { overflow-wrap: anywhere; }
table { border-collapse: collapse; }
td { border-top: 1px solid var(--line); padding: 0.25rem 1rem 0.25rem 0; vertical-align: top; }
dl { margin: 0 0 0 1rem; }
dd { margin-left: 1.5rem; }
@media (max-width: 50rem) { body { display: block; } nav { height: auto; position: static; border: 0; } main { padding: 1rem; } }
`
