import { type FuzzRequest, showInReports } from './fuzz-request.ts'
import type { FuzzedOperation, RequestOptions } from './request-arbitrary.ts'

/**
 * U+0000, which JSON and percent-encoding can express and databases refuse; short enough for any
 * name.
 */
const TEXT = 'a\0bc'

/**
 * Requests that are always made: each text of each example, and each parameter, once has a value
 * that databases refuse.
 */
export function sureRequestsOf(
  { method, path, parameters, body }: FuzzedOperation,
  { headers, examples }: RequestOptions,
): readonly FuzzRequest[] {
  const asked = parameters
    .filter((one) => one.in === 'query')
    .map(({ name }) => `${name}=${encodeURIComponent(TEXT)}`)
  const target =
    path.replaceAll(/\{\w+\}/g, encodeURIComponent(TEXT)) +
    (asked.length > 0 ? `?${asked.join('&')}` : '')
  const request = {
    method,
    target,
    headers,
    body: new Uint8Array(),
    framing: { kind: 'length' },
  } as const
  const bodies = body?.type === 'application/json' ? examples.flatMap(replaceEach) : []
  const typed = [...headers, ['content-type', 'application/json'] as const]
  const posts = bodies.map((value) => ({
    ...request,
    target: path,
    headers: typed,
    body: Buffer.from(JSON.stringify(value)),
  }))
  return (posts.length > 0 ? posts : [request]).map(showInReports)
}

/** The value with one of its texts replaced, for each of them. */
function replaceEach(value: unknown): readonly unknown[] {
  if (typeof value === 'string') return [TEXT]
  if (typeof value !== 'object' || value === null) return []
  const entries = Object.entries(value)
  return entries.flatMap(([name, member]) =>
    replaceEach(member).map((other) =>
      Array.isArray(value) ? value.with(Number(name), other) : { ...value, [name]: other },
    ),
  )
}
