import { CallSample } from './call-sample.tsx'
import {
  type Content,
  keyOf,
  nameOf,
  type Operation,
  type Parameter,
  resolve,
  type Schemas,
} from './interface.ts'
import { Prose } from './prose.tsx'
import type { Language } from './samples.ts'
import { InnerSchema, SchemaView } from './schema-view.tsx'

export function OperationView({
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
  const { 200: reply, ...errors } = responses
  const { parameters = [] } = operation
  return (
    <section id={operationId} class="operation">
      <h2>
        <b>{method}</b> <code>{path}</code>
      </h2>
      <p>
        <Prose text={summary} />. <span class="faint">{describeKey(operation)}</span>
      </p>
      <CallSample
        operation={operation}
        schemas={schemas}
        language={language}
        onLanguage={onLanguage}
      />
      {description !== undefined && (
        <p>
          <Prose text={description} />
        </p>
      )}
      {(parameters.length > 0 || requestBody !== undefined) && <h3>Request</h3>}
      {parameters.length > 0 && <Parameters parameters={parameters} />}
      {requestBody !== undefined && <ContentView content={requestBody.content} schemas={schemas} />}
      {reply !== undefined && (
        <>
          <h3>Reply</h3>
          {reply.description !== 'Success' && (
            <p>
              <Prose text={reply.description} />
            </p>
          )}
          <ContentView content={reply.content} schemas={schemas} />
        </>
      )}
      <Errors errors={errors} />
    </section>
  )
}

function describeKey(operation: Operation): string {
  const key = keyOf(operation)
  if (key === 'none') return 'Needs no key.'
  return key.length > 0 ? `Needs a key with the scope ${key.join(', ')}.` : 'Needs a key.'
}

function Parameters({ parameters }: { readonly parameters: readonly Parameter[] }) {
  return (
    <dl class="members">
      {parameters.map(({ name, in: place, required, schema }) => (
        <div key={name}>
          <dt>
            <code>{name}</code>{' '}
            <small>
              {place}
              {required && ', required'}
            </small>
          </dt>
          <dd>
            <InnerSchema schema={schema} />
          </dd>
        </div>
      ))}
    </dl>
  )
}

/** A schema that several media types share is shown once. */
function ContentView({
  content,
  schemas,
}: {
  readonly content: Content
  readonly schemas: Schemas
}) {
  return (
    <>
      {[...Map.groupBy(Object.entries(content), ([, { schema }]) => nameOf(schema))].map(
        ([name, forms]) => (
          <section key={name}>
            <h4>
              {name} <small>{forms.map(([type]) => type).join(', ')}</small>
            </h4>
            {forms.slice(0, 1).map(([type, { schema }]) => (
              <SchemaView key={type} schema={resolve(schema, schemas)} />
            ))}
          </section>
        ),
      )}
    </>
  )
}

/** All errors have the same form and differ only in their codes. */
function Errors({ errors }: { readonly errors: Operation['responses'] }) {
  const statuses = Object.keys(errors).filter((status) => status !== 'default')
  if (statuses.length === 0) return null
  return (
    <details class="errors">
      <summary>Errors: {statuses.join(', ')}</summary>
      <dl class="members">
        {Object.entries(errors).map(([status, { description }]) => (
          <div key={status}>
            <dt>
              <code>{status}</code>
            </dt>
            <dd>
              <Prose text={description} />
            </dd>
          </div>
        ))}
      </dl>
    </details>
  )
}
