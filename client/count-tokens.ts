import { DEMANDS_HEADER } from '#attestation/dialects/call-request.ts'
import { attempt } from '#attestation/finding.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { memberAt } from '#attestation/json/value.ts'
import type { CallDialect } from './call-dialects.ts'
import { passError } from './error-reply.ts'
import { AffidavitError } from './errors.ts'
import { isRedirect, readAtMost, readTwice } from './gateway.ts'

const COUNT_BYTES_MAX = 64 * 1024

/**
 * Asks the gateway to count the tokens of a request, once more after a broken connection: a count
 * has no side effects. Nothing proves the number in the answer. A client that encrypts its calls,
 * or that demands attested providers, does NOT send the request, because the gateway or another
 * provider would read the prompt. This client answers 404, and agents then estimate the number.
 * Throws AffidavitError `redirected`, `answer_too_large`, `invalid_answer`.
 */
export async function askCount(
  given: { readonly headers: Headers; readonly body: Uint8Array<ArrayBuffer> },
  options: {
    readonly form: CallDialect
    readonly isEncrypted: boolean
    readonly isProviderDemanded: boolean
    readonly send: (init: RequestInit) => Promise<Response>
    readonly signal: AbortSignal | undefined
  },
): Promise<Response> {
  const { form, isEncrypted, isProviderDemanded, send, signal } = options
  if (isEncrypted) return refuseCount(form, ENCRYPTED)
  if (isProviderDemanded) return refuseCount(form, UNATTESTED)
  const headers = new Headers(given.headers)
  headers.delete(DEMANDS_HEADER)
  const response = await readTwice(() => send({ headers, body: given.body }), { signal })
  if (isRedirect(response)) throw new AffidavitError('redirected', 'expected no redirection')
  if (!response.ok) return await passError(response, form)
  const bytes = await readAtMost(response, COUNT_BYTES_MAX)
  if (bytes === null)
    throw new AffidavitError('answer_too_large', `expected at most ${COUNT_BYTES_MAX} bytes`)
  const read = attempt(() => memberAt(parseExactJson(bytes), 'input_tokens'))
  const count = 'value' in read ? read.value : undefined
  if (typeof count !== 'number' || !Number.isSafeInteger(count) || count < 0)
    throw new AffidavitError('invalid_answer', 'expected input_tokens to be a number of tokens')
  return Response.json({ input_tokens: count })
}

const ENCRYPTED =
  'calls are encrypted, and the gateway would read the prompt of this request. Estimate the ' +
  'number, or connect with encrypt: false (affidavit proxy --no-encrypt)'
const UNATTESTED =
  'only attested providers may read prompts, and nothing proves which provider counts. Estimate ' +
  'the number, or connect with a policy without providers'

function refuseCount({ errorBody }: CallDialect, reason: string): Response {
  const status = 404
  const message = `the tokens are not counted: ${reason}`
  const type = 'invalid_request_error'
  const body = errorBody({ status, type, code: 'unsupported_call', message })
  return Response.json(body, { status, headers: { 'x-should-retry': 'false' } })
}
