import { z } from 'zod'
import {
  ENCAPSULATED_KEY_HEADER,
  KEY_CONFIG_PROBLEM,
  NOTARY_HEADER,
  RESPONSE_NONCE_HEADER,
} from '../../attestation/ehbp.ts'
import {
  type EncryptedFault,
  type EncryptedHead,
  type EncryptedSealed,
  SEALED_CREDENTIAL_BYTES_MAX,
} from '../../enclave/protocol/messages.ts'
import { admitCall, type RateLimiter } from '../accounts/limits/limiter.ts'
import type { RouteContext } from '../api/context.ts'
import { ApiError, asError } from '../api/errors.ts'
import { drained } from '../api/event-stream.ts'
import type { RawCall } from '../api/route.ts'
import { described, faultIssue } from '../api/schemas.ts'
import { validate } from '../api/validation.ts'
import { callErrorOf, EnclaveError, outageErrorOf } from '../enclaves/enclave-errors.ts'
import type { EnclavePool } from '../enclaves/enclave-pool.ts'
import type { EncryptedAnswer, EncryptedEvent } from '../enclaves/encrypted-answer.ts'
import { timed } from '../observability/call-scope.ts'
import type { Logger } from '../observability/logger.ts'
import { encodeCallContext } from './completion-call.ts'
import type { StoredRecord } from './records-store.ts'
import type { ModelOutcomes } from './verified-completions.ts'

/**
 * Encrypted calls (EHBP): the gateway sees headers, lengths and times, and passes on what it cannot
 * read. What an enclave is to be asked with, and what limits need to know, is all it handles.
 */

/** A reader that lets nothing be written for so long is cut off, milliseconds. */
const DRAIN_TIMEOUT_MS = 30_000

/** The enclave, or the key, is gone: the caller fetches keys again and repeats its call (EHBP). */
const KEY_CONFIG_BODY = JSON.stringify({
  type: KEY_CONFIG_PROBLEM,
  title: 'This key is not one of an enclave in use. Nothing was processed: fetch the keys again.',
})

const sealedCredential = described(
  z.string().transform((header, context) => {
    const [, sealed = ''] = /^hpke +([A-Za-z0-9_-]+)$/i.exec(header.trim()) ?? []
    const length = Math.floor((sealed.length * 3) / 4)
    if (sealed !== '' && length <= SEALED_CREDENTIAL_BYTES_MAX) return sealed
    context.issues.push(
      faultIssue([], 'value_error', 'Input should be `hpke` and a sealed credential in base64url'),
    )
    return z.NEVER
  }),
  () => ({
    type: 'string',
    description: '`hpke <base64url>`: the credential at the provider, sealed to the same key',
  }),
).optional()

const encryptedHeaders = z.object({
  [ENCAPSULATED_KEY_HEADER]: z.string().regex(/^[0-9a-f]{64}$/),
  [NOTARY_HEADER]: z
    .string()
    .regex(/^0x[0-9a-fA-F]{40}$/)
    .transform((text) => text.toLowerCase())
    .optional(),
  'fine-tune-authorization': sealedCredential,
})

/** What encrypted calls need of the service. */
export type EncryptedCalls = {
  readonly enclaves: Pick<EnclavePool, 'findEncrypted'>
  /** Throws what refuses calls while nothing can be committed. */
  readonly requireCommits: () => void
  /** Resolves with the record of a sealed completion, once it is stored. Throws ApiError. */
  readonly recordOf: (
    sealed: Pick<EncryptedSealed, 'notary' | 'index'>,
    abort: AbortController,
  ) => Promise<StoredRecord>
  /** The operator's credentials by provider name: all of them, since the model is not known. */
  readonly credentials: ReadonlyMap<string, string>
  readonly limiter: Pick<RateLimiter, 'admit'>
  /** Told of models that completions were made of. */
  readonly outcomes: Pick<ModelOutcomes, 'noteServed'>
  /** Milliseconds. */
  readonly now: () => number
  readonly log: Logger
}

/** Whether a call is encrypted: its header says so, whatever its body is. */
export function isEncryptedCall(context: RouteContext): boolean {
  return context.req.headers[ENCAPSULATED_KEY_HEADER] !== undefined
}

/**
 * Serves one encrypted call. Until its enclave has opened it, faults are answered in the clear;
 * then all of the answer is the enclave's.
 */
export async function serveEncryptedCall(
  service: EncryptedCalls,
  { context, abort }: RawCall,
): Promise<void> {
  if (context.req.headers['idempotency-key'] !== undefined)
    throw new ApiError(
      'unsupported_request_parameter',
      'Expected no Idempotency-Key with an encrypted call: no answer is kept that could be repeated',
    )
  const headers = validate('header', encryptedHeaders, context.headers)
  service.requireCommits()
  const permit = await admitCall(context, service.limiter, {
    ...{ kind: 'verified', model: '', estimate: 0 },
  })
  let usedTokens = 0
  try {
    const answer = await ask(service, { context, headers, abort })
    if (answer === null) {
      answerKeyConfig(context)
      return
    }
    usedTokens = await passOn(service, { context, abort, ...answer })
  } finally {
    permit.settle(usedTokens)
  }
}

type OpenAnswer = {
  readonly answer: Extract<EncryptedAnswer, { kind: 'answer' }>
  readonly endpoint: NonNullable<ReturnType<EnclavePool['findEncrypted']>>
}

/** Null when the key that was used is of no enclave that takes calls. */
async function ask(
  { enclaves, credentials, now, log }: EncryptedCalls,
  call: {
    readonly context: RouteContext
    readonly headers: z.output<typeof encryptedHeaders>
    readonly abort: AbortController
  },
): Promise<OpenAnswer | null> {
  const { context, headers, abort } = call
  const endpoint = enclaves.findEncrypted(headers[NOTARY_HEADER] ?? null)
  if (endpoint === null) return null
  const { requestId, caller } = context.state
  const encrypted = {
    context: encodeCallContext({ accountId: caller?.accountId ?? '', requestId }),
    credentials: Object.fromEntries(credentials),
    encapsulated_key: headers[ENCAPSULATED_KEY_HEADER],
    sealed_credential: headers['fine-tune-authorization'] ?? null,
  }
  try {
    const answer = await timed({ phase: 'enclave', now }, () =>
      endpoint.encrypted(encrypted, context.req, abort.signal),
    )()
    if (answer.kind === 'answer') return { answer, endpoint }
    if (answer.fault.code === 'unknown_key') return null
    throw callErrorOf(answer.fault, true)
  } catch (error) {
    if (!(error instanceof EnclaveError)) throw error
    log.warn({ requestId, err: error }, 'encrypted call failed')
    // Nothing of it was sent: another key may be another enclave's.
    if (!error.wasSent) return null
    throw outageErrorOf(error)
  }
}

function answerKeyConfig(context: RouteContext): void {
  context.status = 422
  context.set('content-type', 'application/problem+json')
  context.body = KEY_CONFIG_BODY
}

/** Passes frames on as they come, and brings the enclave what its proof lacks. Gives the tokens. */
async function passOn(
  service: EncryptedCalls,
  call: OpenAnswer & { readonly context: RouteContext; readonly abort: AbortController },
): Promise<number> {
  const { context, abort, answer, endpoint } = call
  const { res } = context
  let usedTokens = 0
  context.respond = false
  res.on('error', () => undefined)
  try {
    for await (const event of answer.events) {
      if (event.kind === 'head') begin(context, { head: event.head, nonce: answer.responseNonce })
      else if (event.kind === 'frames') await write(context, event)
      else if (event.kind === 'fault') noteFault(service, context, event.fault)
      else {
        usedTokens = event.sealed.usage?.total_tokens ?? 0
        service.outcomes.noteServed(event.sealed.model)
        if (event.sealed.call === '') continue
        const record = await service.recordOf(event.sealed, abort)
        await endpoint.giveProof(proofOf(event.sealed.call, record), abort.signal)
      }
    }
    res.end()
  } catch (error) {
    if (!res.headersSent) {
      context.respond = true
      throw error instanceof EnclaveError ? outageErrorOf(error) : asError(error)
    }
    // Half an answer must not look whole.
    res.destroy()
    throw asError(error)
  }
  return usedTokens
}

function begin(
  context: RouteContext,
  { head, nonce }: { readonly head: EncryptedHead; readonly nonce: string },
): void {
  const { retry_after_seconds: wait } = head
  for (const [name, value] of Object.entries({
    'content-type': head.content_type,
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
    [RESPONSE_NONCE_HEADER]: nonce,
    ...(wait === null
      ? {}
      : { 'retry-after': String(wait), 'retry-after-ms': String(wait * 1000) }),
    ...(head.should_retry ? {} : { 'x-should-retry': 'false' }),
  }))
    context.res.setHeader(name, value)
  context.res.writeHead(head.status)
  context.res.flushHeaders()
}

async function write(
  { res }: RouteContext,
  { bytes }: Extract<EncryptedEvent, { kind: 'frames' }>,
): Promise<void> {
  if (!res.write(bytes)) await drained(res, DRAIN_TIMEOUT_MS)
}

/** The caller is told in the frames; here it is counted, without words. */
function noteFault({ log }: EncryptedCalls, { state }: RouteContext, fault: EncryptedFault): void {
  log.debug({ requestId: state.requestId, code: fault.code }, 'encrypted call refused')
}

function proofOf(call: string, { txHash, logProof }: StoredRecord) {
  const { chainId, ...proof } = logProof
  return { call, tx_hash: txHash, log: { ...proof, chain_id: chainId } }
}
