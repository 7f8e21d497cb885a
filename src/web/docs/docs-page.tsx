import { useEffect, useState } from 'preact/hooks'
import { askGateway } from '../kit/gateway.ts'
import { Busy, FaultNotice } from '../kit/notices.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import {
  type Content,
  type InterfaceDocument,
  keyOf,
  nameOf,
  type Operation,
  operationsOf,
  resolve,
  type Schemas,
} from './interface.ts'
import type { Language } from './samples.ts'
import { SchemaView } from './schema-view.tsx'
import { TryIt } from './try-it.tsx'

/** The interface for people: what `/openapi.json` says, with calls to copy and to try. */
export function DocsPage() {
  const { value, fault, reload } = useLoaded(
    (signal) => askGateway<InterfaceDocument>('/openapi.json', { signal }),
    [],
  )
  const [wanted, setWanted] = useState('')
  return (
    <>
      <h1>API</h1>
      <p>
        Any OpenAI client works: give it <code>{location.origin}/v1/verified</code> as its base URL
        for answers with evidence, <code>{location.origin}/v1</code> for those without. Keys are
        sent as <code>Authorization: Bearer …</code>. The same for machines:{' '}
        <a href="/openapi.json">openapi.json</a> (OpenAPI 3.1).
      </p>
      <div class="field">
        <label for="find">Find</label>
        <input
          id="find"
          type="search"
          placeholder="chat, keys, log …"
          value={wanted}
          onInput={({ currentTarget }) => setWanted(currentTarget.value)}
        />
      </div>
      {fault !== null && <FaultNotice fault={fault} onRetry={reload} />}
      {value === null ? (
        fault === null && <Busy what="Loading the interface" />
      ) : (
        <Reference {...{ document: value, wanted }} />
      )}
    </>
  )
}

function Reference({
  document,
  wanted,
}: {
  readonly document: InterfaceDocument
  readonly wanted: string
}) {
  const [language, onLanguage] = useState<Language>('curl')
  // The browser looked for it before it was there.
  useEffect(() => window.document.getElementById(location.hash.slice(1))?.scrollIntoView(), [])
  const words = wanted.toLowerCase().split(/\s+/)
  const found = operationsOf(document).filter(({ method, path, summary, tags }) => {
    const text = `${method} ${path} ${summary} ${tags.join(' ')}`.toLowerCase()
    return words.every((word) => text.includes(word))
  })
  const byTag = [...Map.groupBy(found, ({ tags }) => tags[0] ?? '')]
  const { schemas } = document.components
  return (
    <div class="reference">
      <nav aria-label="Operations">
        {byTag.map(([tag, operations]) => (
          <section key={tag}>
            <h2>{tag}</h2>
            <ul>
              {operations.map(({ operationId, method, path }) => (
                <li key={operationId}>
                  <a href={`#${operationId}`}>
                    <b>{method}</b> {path}
                  </a>
                </li>
              ))}
            </ul>
          </section>
        ))}
      </nav>
      <div>
        <p role="status" class="hidden-text">
          {found.length} operations
        </p>
        {found.length === 0 && <p>No call has these words.</p>}
        {byTag.map(([tag, operations]) => (
          <section key={tag}>
            <h2>{tag}</h2>
            {operations.map((operation) => (
              <OperationView
                {...{ key: operation.operationId, operation, schemas, language, onLanguage }}
              />
            ))}
          </section>
        ))}
      </div>
    </div>
  )
}

function OperationView({
  operation,
  schemas,
  language,
  onLanguage,
}: {
  readonly operation: Operation
  readonly schemas: Schemas
  readonly language: Language
  readonly onLanguage: (language: Language) => void
}) {
  const { operationId, method, path, summary, description, requestBody, responses } = operation
  const [isTried, setIsTried] = useState(location.hash === `#${operationId}`)
  return (
    <section id={operationId} class="operation">
      <h3>
        <b>{method}</b> <code>{path}</code>
      </h3>
      <p>
        {summary}. {describeKey(operation)}
      </p>
      {description !== undefined && <p>{description}</p>}
      {requestBody !== undefined && (
        <ContentView {...{ label: 'Request', content: requestBody.content, schemas }} />
      )}
      {Object.entries(responses).map(([status, response]) => (
        <div key={status}>
          <p>
            <b>{status}</b> {response.description}
          </p>
          {/* Errors all look alike: only their codes are said. */}
          {status === '200' && (
            <ContentView {...{ label: 'Answer', content: response.content, schemas }} />
          )}
        </div>
      ))}
      <details open={isTried} onToggle={({ currentTarget }) => setIsTried(currentTarget.open)}>
        <summary>Samples, and try it</summary>
        {isTried && <TryIt {...{ operation, schemas, language, onLanguage }} />}
      </details>
    </section>
  )
}

function describeKey(operation: Operation): string {
  const key = keyOf(operation)
  if (key === 'none') return 'Needs no key.'
  return key.length > 0 ? `Needs a key with the scope ${key.join(', ')}.` : 'Needs a key.'
}

function ContentView({
  label,
  content,
  schemas,
}: {
  readonly label: string
  readonly content: Content
  readonly schemas: Schemas
}) {
  return (
    <>
      {Object.entries(content).map(([type, { schema }]) => (
        <SchemaDetails
          {...{ key: type, schema: resolve(schema, schemas) }}
          title={`${label}: ${nameOf(schema)} (${type})`}
        />
      ))}
    </>
  )
}

/** What is inside is made when it is opened: all of them together are thousands of elements. */
function SchemaDetails({
  title,
  schema,
}: {
  readonly title: string
  readonly schema: Readonly<Record<string, unknown>>
}) {
  const [isOpen, setIsOpen] = useState(false)
  return (
    <details open={isOpen} onToggle={({ currentTarget }) => setIsOpen(currentTarget.open)}>
      <summary>{title}</summary>
      {isOpen && <SchemaView schema={schema} />}
    </details>
  )
}
