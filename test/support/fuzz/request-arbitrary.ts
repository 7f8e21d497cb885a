import fc from 'fast-check'
import { type BodyOptions, bodiesOf } from './body-arbitrary.ts'
import { formsOf } from './form-arbitrary.ts'
import type { Framing, FuzzRequest, Header } from './fuzz-request.ts'
import { showInReports } from './fuzz-request.ts'
import { changeHeaders, conflictingFraming, headerChanges } from './header-arbitrary.ts'
import { spoilBytes } from './hostile-bytes.ts'
import type { Dictionary, Schema } from './schema-arbitrary.ts'
import { type Parameter, targetsOf } from './target-arbitrary.ts'
import { writeJson } from './written-json.ts'

/** What the fuzzer calls: an operation of the OpenAPI document. */
export type FuzzedOperation = {
  readonly method: string
  /** Its pattern: `/v1/log/{notary}`. */
  readonly path: string
  readonly parameters: readonly Parameter[]
  readonly body: { readonly type: string; readonly schema: Schema } | null
}

export type RequestOptions = {
  /** Headers that every request has, so that its caller is known. */
  readonly headers: readonly Header[]
  readonly dictionary: Dictionary
  /** Bodies that the service accepts. */
  readonly examples: readonly object[]
}

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'TRACE', 'PROPFIND']

/**
 * Requests of an operation: as documented; with a hostile target, body, header or framing; or with
 * bytes of another kind. About a third passes the checks.
 */
export function requestsOf(
  operation: FuzzedOperation,
  options: RequestOptions,
): fc.Arbitrary<FuzzRequest> {
  const sound = requestWith(operation, options, { target: false, body: false })
  const requests = fc.oneof(
    { weight: 2, arbitrary: sound },
    { weight: 2, arbitrary: requestWith(operation, options, { target: true, body: false }) },
    {
      weight: operation.body === null ? 1 : 4,
      arbitrary: requestWith(operation, options, { target: false, body: true }),
    },
    {
      weight: 2,
      arbitrary: fc.tuple(sound, headerChanges).map(([request, changes]) => ({
        ...request,
        headers: changeHeaders(request.headers, changes),
      })),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(sound, fc.constantFrom(...METHODS))
        .map(([request, method]) => ({ ...request, method })),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(sound, conflictingFraming)
        .map(([request, framing]) => ({ ...request, framing })),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(sound, fc.uint8Array({ maxLength: 60 }))
        .map(([request, body]) => ({ ...request, body })),
    },
  )
  return requests.map(showInReports)
}

function requestWith(
  { method, path, parameters, body }: FuzzedOperation,
  { headers, dictionary, examples }: RequestOptions,
  isSpoiled: { readonly target: boolean; readonly body: boolean },
): fc.Arbitrary<FuzzRequest> {
  return fc
    .record({
      target: targetsOf(path, parameters, { dictionary, isSpoiled: isSpoiled.target }),
      content: contentsOf(body, { dictionary, examples, isSpoiled: isSpoiled.body }),
      framing: wholeFraming,
    })
    .map(({ target, content, framing }) => ({
      method,
      target,
      framing,
      body: content.bytes,
      headers:
        content.type === '' ? headers : [...headers, ['content-type', content.type] as const],
    }))
}

const wholeFraming: fc.Arbitrary<Framing> = fc.oneof(
  { weight: 4, arbitrary: fc.constant<Framing>({ kind: 'length' }) },
  {
    weight: 1,
    arbitrary: fc
      .integer({ min: 1, max: 64 })
      .map((chunkBytes): Framing => ({ kind: 'chunked', chunkBytes })),
  },
)

function contentsOf(
  body: FuzzedOperation['body'],
  options: BodyOptions,
): fc.Arbitrary<{ readonly type: string; readonly bytes: Uint8Array }> {
  if (body === null) {
    const none = new Uint8Array()
    return (options.isSpoiled ? fc.uint8Array({ maxLength: 40 }) : fc.constant(none)).map(
      (bytes) => ({
        type: '',
        bytes,
      }),
    )
  }
  if (body.type === 'multipart/form-data')
    return formsOf(body.schema, options).map(({ contentType, bytes }) => ({
      type: contentType,
      bytes,
    }))
  const texts = bodiesOf(body.schema, options).map(
    (written): Uint8Array => Buffer.from(writeJson(written)),
  )
  const all = options.isSpoiled
    ? fc.oneof({ weight: 3, arbitrary: texts }, { weight: 1, arbitrary: spoilBytes(texts) })
    : texts
  return all.map((bytes) => ({ type: body.type, bytes }))
}
