import { useRef, useState } from 'preact/hooks'
import type { JsonSchema } from '../../api/schemas.ts'
import { Busy, FaultNotice, State } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { holdKey, tabKey } from '../kit/tab-key.ts'
import { CodeBlock } from './code-block.tsx'
import { keyOf, type Operation, type Parameter, resolve, type Schemas } from './interface.ts'
import { LanguageTabs } from './language-tabs.tsx'
import { type Language, type SampleCall, writeSample } from './samples.ts'

type Reply = {
  readonly status: number
  readonly requestId: string | null
  readonly text: string
  readonly isWhole: boolean
}

/** Characters. The rest of a longer answer is not read. */
const REPLY_LENGTH_MAX = 1_000_000

/** A call as code, the fields of the call, and a button that makes the call with this tab's key. */
export function CallSample({
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
  const { parameters = [], requestBody, operationId: id } = operation
  const content = requestBody?.content
  const [values, setValues] = useState<Readonly<Record<string, string>>>({})
  const example = content?.['application/json']?.example
  const [body, setBody] = useState(
    content?.['application/json'] === undefined ? null : JSON.stringify(example ?? {}, null, 2),
  )
  const call = sampleOf(operation, { values, body, schemas })
  const title = `${operation.method} ${operation.path}`
  return (
    <>
      <LanguageTabs id={id} language={language} onLanguage={onLanguage}>
        <CodeBlock label={`${title} in ${language}`} text={writeSample(language, call)} />
      </LanguageTabs>
      <details class="try">
        <summary>Fill it in, and try it</summary>
        {parameters.map((parameter) => (
          <ParameterField
            key={parameter.name}
            id={`${id}-${parameter.name}`}
            parameter={parameter}
            value={values[parameter.name] ?? ''}
            onChange={(value) => setValues({ ...values, [parameter.name]: value })}
          />
        ))}
        {body !== null && (
          <div class="field">
            <label for={`${id}-body`}>Body</label>
            <textarea
              id={`${id}-body`}
              class="mono"
              rows={Math.min(16, body.split('\n').length + 1)}
              spellcheck={false}
              value={body}
              onInput={({ currentTarget }) => setBody(currentTarget.value)}
            />
          </div>
        )}
        {call.form !== null ? (
          <p class="faint">
            This call takes files: make it from your own machine, as the sample does.
          </p>
        ) : (
          <Call id={id} title={title} call={call} parameters={parameters} values={values} />
        )}
      </details>
    </>
  )
}

function ParameterField({
  id,
  parameter: { name, in: place, required },
  value,
  onChange,
}: {
  readonly id: string
  readonly parameter: Parameter
  readonly value: string
  readonly onChange: (value: string) => void
}) {
  return (
    <div class="field">
      <label for={id}>
        <code>{name}</code>{' '}
        <span class="hint">
          {place}
          {required ? ', required' : ''}
        </span>
      </label>
      <input
        id={id}
        value={value}
        autocomplete="off"
        onInput={({ currentTarget }) => onChange(currentTarget.value)}
      />
    </div>
  )
}

function Call({
  id,
  title,
  call,
  parameters,
  values,
}: {
  readonly id: string
  /** For example `GET /v1/log`. */
  readonly title: string
  readonly call: SampleCall
  readonly parameters: readonly Parameter[]
  readonly values: Readonly<Record<string, string>>
}) {
  const [key, setKey] = useState(tabKey() ?? '')
  const [reply, setReply] = useState<Reply | null>(null)
  const [fault, setFault] = useState<unknown>(null)
  const running = useRef<AbortController | null>(null)
  const [isRunning, setIsRunning] = useState(false)
  const missing = parameters.filter(({ name, required }) => required && !values[name])

  async function run(): Promise<void> {
    const abort = new AbortController()
    running.current = abort
    setIsRunning(true)
    setFault(null)
    setReply(null)
    if (call.hasKey) holdKey(key, false)
    try {
      for await (const part of replies(call, call.hasKey ? key : null, abort.signal)) setReply(part)
    } catch (error) {
      if (!abort.signal.aborted) setFault(error)
    } finally {
      setIsRunning(false)
    }
  }

  return (
    <>
      {call.hasKey && (
        <div class="field">
          <label for={`${id}-key`}>
            API key <span class="hint">it stays in this tab, and is sent only to this gateway</span>
          </label>
          <input
            id={`${id}-key`}
            type="password"
            autocomplete="off"
            value={key}
            onInput={({ currentTarget }) => setKey(currentTarget.value)}
          />
        </div>
      )}
      <div class="row">
        <button
          type="button"
          class="primary"
          disabled={isRunning || missing.length > 0 || (call.hasKey && key === '')}
          onClick={() => void run()}
        >
          Send {call.method}
        </button>
        {isRunning && (
          <button type="button" onClick={() => running.current?.abort()}>
            Stop
          </button>
        )}
        {missing.length > 0 && (
          <span class="faint">Needs {missing.map(({ name }) => name).join(', ')}.</span>
        )}
      </div>
      {isRunning && <Busy what="Waiting for the gateway" />}
      {fault !== null && <FaultNotice fault={fault} />}
      {reply !== null && <ReplyView title={title} {...reply} />}
    </>
  )
}

function ReplyView({
  title,
  status,
  requestId,
  text,
  isWhole,
}: Reply & { readonly title: string }) {
  return (
    <div class="reply">
      <p role="status">
        <State tone={status < 400 ? 'good' : 'bad'}>Status {status}</State>{' '}
        {requestId !== null && (
          <span class="faint">
            Request <OutsideText text={requestId} isOneLine={true} shownMax={128} />
          </span>
        )}
        {!isWhole && ' …'}
      </p>
      <CodeBlock label={`the answer to ${title}`} text={isWhole ? layOut(text) : text} />
    </div>
  )
}

/** Formats JSON over several lines. Other text stays unchanged. */
function layOut(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2)
  } catch {
    return text
  }
}

/** Yields the parts of the answer as they arrive. Throws the errors of fetch. */
async function* replies(
  { url, method, headers, body }: SampleCall,
  key: string | null,
  signal: AbortSignal,
): AsyncGenerator<Reply> {
  const response = await fetch(url, {
    method,
    body,
    signal,
    credentials: 'omit',
    redirect: 'error',
    headers: {
      ...headers,
      ...(key === null ? {} : { authorization: `Bearer ${key}` }),
      ...(body === null ? {} : { 'content-type': 'application/json' }),
    },
  })
  const { status } = response
  const requestId = response.headers.get('x-request-id')
  let text = ''
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader()
  for (;;) {
    const part = await reader?.read()
    if (part === undefined || part.done) break
    text += part.value
    if (text.length > REPLY_LENGTH_MAX) {
      await reader?.cancel()
      text = `${text.slice(0, REPLY_LENGTH_MAX)}\n… the rest was not read`
      break
    }
    yield { status, requestId, text, isWhole: false }
  }
  yield { status, requestId, text, isWhole: true }
}

/** A part with binary data is a file. */
function formOf({ properties }: JsonSchema, example: unknown): SampleCall['form'] {
  const isFile = (schema: unknown) =>
    typeof schema === 'object' && schema !== null && Reflect.get(schema, 'format') === 'binary'
  return {
    files: Object.entries(properties ?? {}).flatMap(([name, schema]) =>
      isFile(schema) ? [name] : [],
    ),
    fields: { ...(example as Readonly<Record<string, string>>) },
  }
}

/** Leaves out empty optional parameters. */
function sampleOf(
  operation: Operation,
  {
    values,
    body,
    schemas,
  }: {
    readonly values: Readonly<Record<string, string>>
    readonly body: string | null
    readonly schemas: Schemas
  },
): SampleCall {
  const { method, path, parameters = [], requestBody } = operation
  const given = (place: Parameter['in']) =>
    parameters.filter(
      ({ name, in: where, required }) => where === place && (required || values[name]),
    )
  const query = new URLSearchParams(
    given('query').map(({ name }): [string, string] => [name, values[name] ?? '']),
  )
  const filled = given('path').reduce(
    (at, { name }) =>
      at.replace(`{${name}}`, (place) => (values[name] ? encodeURIComponent(values[name]) : place)),
    path,
  )
  const form = requestBody?.content['multipart/form-data']
  return {
    method,
    body,
    hasKey: keyOf(operation) !== 'none',
    url: `${location.origin}${filled}${query.size > 0 ? `?${query}` : ''}`,
    headers: Object.fromEntries(given('header').map(({ name }) => [name, values[name] ?? ''])),
    form: form === undefined ? null : formOf(resolve(form.schema, schemas), form.example),
  }
}
