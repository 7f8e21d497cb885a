import type { IncomingMessage, ServerResponse } from 'node:http'
import { answerBound } from '#attestation/dialects/usage.ts'
import { measureJson } from '#attestation/json/json-size.ts'
import { CallerGone, CallFault, faultOf } from '../call-fault.ts'
import type { CallForm } from '../calls/call-forms.ts'
import { parseRequest } from '../calls/parse-request.ts'
import { type CompletionCore, serveCompletion } from '../calls/serve-completion.ts'
import { weighJson } from '../log/weigh-json.ts'
import { describeError, type EventLog } from '../logger.ts'
import { chooseProvider } from '../protocol/choose-provider.ts'
import type { EncryptedCall, ProviderEntry } from '../protocol/enclave-api.ts'
import {
  EncryptedAnswerPort,
  KEEP_ALIVE_MS,
  NO_CREDENTIAL,
  type ShownCredential,
} from './encrypted-answer.ts'
import type { KeyRing } from './key-ring.ts'
import { type OpenedCall, openCall } from './open-call.ts'
import type { ProofWaiters } from './proof-waiters.ts'

export type EncryptedCore = {
  readonly core: CompletionCore
  readonly ring: KeyRing
  readonly waiters: ProofWaiters
  readonly log: EventLog
  /** Default: KEEP_ALIVE_MS. */
  readonly keepAliveMs?: number | undefined
}

/**
 * Makes one encrypted completion. Throws faults only before the decryption. After the decryption,
 * every answer is encrypted, including errors, and only CallerGone is thrown. The answer consists
 * of ENCRYPTED_RECORDS.
 */
export async function serveEncrypted(
  { core, ring, waiters, log, keepAliveMs = KEEP_ALIVE_MS }: EncryptedCore,
  call: EncryptedCall,
  {
    request,
    response,
    form,
  }: {
    readonly request: IncomingMessage
    readonly response: ServerResponse
    readonly form: CallForm
  },
): Promise<void> {
  const opened = await openCall(request, { call, ring, space: core.space })
  const answer = new EncryptedAnswerPort({
    dialect: form.dialect,
    response,
    waiters,
    secret: opened.secret,
    enc: Buffer.from(call.encapsulated_key, 'hex'),
    drainTimeoutMs: core.limits.drainTimeoutMs,
    keepAliveMs,
  })
  try {
    await complete(core, answer, { call, opened, form })
  } catch (error) {
    if (error instanceof CallerGone) throw error
    const fault = faultOf(error)
    if (fault.code === 'internal_error') log('error', 'call failed', describeError(error))
    await answer.fail(fault)
  } finally {
    answer.stopKeepAlive()
  }
}

async function complete(
  core: CompletionCore,
  answer: EncryptedAnswerPort,
  { call, opened, form }: Arrived,
): Promise<void> {
  const checked = form.readEncrypted(opened.body)
  if ('faults' in checked) return answer.refuseRequest(checked.faults)
  const parsed = parseRequest(opened.body, { form, json: checked.request })
  answer.model = parsed.model
  const { answer_tokens_max: most = Infinity } = call
  const answerTokens = answerBound(form.dialect.name, parsed.body) ?? Infinity
  if (!(Math.max(1, Number(parsed.body.n ?? 1)) * answerTokens <= most)) {
    const message = `expected at most ${most} tokens for all answers, as stated outside of the seal`
    throw new CallFault('invalid_request', message, { loc: ['body'] })
  }
  const provider = chooseProvider(core.providers, parsed.model, form.dialect.name)
  const chosen = chooseCredential(provider, { call, opened })
  if (chosen === null)
    return answer.refuse({
      code: 'provider_credential_missing',
      message:
        `This service has no key for the provider ${provider?.name}: ` +
        'send yours as Fine-Tune-Authorization',
    })
  const requestBytes = weighJson(opened.body, measureJson(opened.body))
  answer.shown = chosen
  const given = {
    context: call.context,
    provider: provider?.name ?? '',
    credential: chosen.credential,
    is_callers: opened.callerCredential !== null,
  }
  await serveCompletion(core, { call: given, parsed, requestBytes, isEncrypted: true }, answer)
}

type Arrived = {
  readonly call: EncryptedCall
  readonly opened: OpenedCall
  readonly form: CallForm
}

/** Returns null if a required credential is missing. Plain http needs no credential. */
function chooseCredential(
  provider: ProviderEntry | null,
  { call, opened }: Pick<Arrived, 'call' | 'opened'>,
): ShownCredential | null {
  const { callerCredential } = opened
  if (callerCredential !== null) return { credential: callerCredential, isOperators: false }
  if (provider === null) return NO_CREDENTIAL
  const { credentials } = call
  const credential = Object.hasOwn(credentials, provider.name)
    ? (credentials[provider.name] ?? null)
    : null
  if (credential === null && !provider.origin.startsWith('http://')) return null
  return { credential, isOperators: credential !== null }
}
