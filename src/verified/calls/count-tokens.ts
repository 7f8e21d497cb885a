import { DIALECT_HEADERS } from '#attestation/dialects/dialect-names.ts'
import {
  chooseProvider,
  credentialHeader,
  endpointOf,
  unsupportedMessage,
} from '#enclave/protocol/choose-provider.ts'
import type { ProviderEntry } from '#enclave/protocol/enclave-api.ts'
import { admitCall, type RateLimiter } from '../../accounts/limits/limiter.ts'
import { createAdmission } from '../../api/admission.ts'
import { ApiError, UPSTREAM_ERRORS } from '../../api/errors.ts'
import { ANTHROPIC_FACE } from '../../api/faces.ts'
import { defineRoute, type Route } from '../../api/route.ts'
import { COUNT_BODY, COUNT_LIMITS, COUNT_REPLY } from '../../chat/count-tokens.ts'
import type { EnclavePool } from '../../enclaves/enclave-pool.ts'
import { providersOf } from '../../enclaves/provider-table.ts'
import { recordInference } from '../../observability/call-scope.ts'
import type { OnStarted } from '../../runtime/starting.ts'
import { concernsRequest, requestRefused, serviceCallErrorOf } from '../../upstream/call-error.ts'
import { createEndpoint, type Endpoint, EndpointError } from '../../upstream/endpoint.ts'
import { chooseCredential, credentialHeaders, givenHeaders } from './completion-call.ts'

const PATHS = [
  '/v1/verified/anthropic/v1/messages/count_tokens',
  '/v1/verified/anthropic/messages/count_tokens',
]
const TIMEOUT_MS = 30_000
const ANSWER_BYTES_MAX = 64 * 1024

type CountParts = {
  readonly enclaves: Pick<EnclavePool, 'identities'>
  /** The operator's credentials, by provider name. */
  readonly credentials: () => ReadonlyMap<string, string>
  /** PEM of the authorities that are trusted for providers. Null: the system's authorities. */
  readonly providerCas: readonly string[] | null
  readonly limiter: Pick<RateLimiter, 'admit'>
  readonly bodyBytesMax: number
  readonly onStarted: OnStarted
}

/**
 * Returns routes that ask the provider directly: no enclave takes part, and the count has no
 * evidence and no record.
 */
export function countTokensRoutes(parts: CountParts): readonly Route[] {
  const admission = createAdmission(COUNT_LIMITS)
  const endpoints = openEndpoints(parts)
  return PATHS.map((path) =>
    defineRoute({
      method: 'POST',
      path,
      face: ANTHROPIC_FACE,
      tag: 'Verified chat',
      summary: 'Count the tokens of a Messages request, without evidence',
      description:
        'The gateway asks the provider that serves the model in Messages. A provider that does ' +
        'not count gives a 404. The call counts as one request without tokens.',
      scope: 'inference',
      headers: credentialHeaders,
      body: { ...COUNT_BODY, bytesMax: parts.bodyBytesMax },
      reply: COUNT_REPLY,
      errors: [
        'rate_limit_exceeded',
        'insufficient_quota',
        'unsupported_model',
        'provider_credential_missing',
        'not_found',
        'enclave_unavailable',
        ...UPSTREAM_ERRORS,
      ],
      // The caller's credential can be at fault.
      providerStatuses: [401, 403],
      admission,
      isAbortable: true,
      async handler({ context, body: { model }, bytes, headers, abort, slot }) {
        const permit = await admitCall(context, parts.limiter, {
          kind: 'verified',
          model,
          estimate: 0,
        })
        permit.settle(0)
        const callerCredential = headers['fine-tune-authorization'] ?? null
        const asked = whomToAsk({ model, callerCredential }, parts)
        recordInference(() => ({ provider: asked.provider }))
        const count = await endpoints(asked.url)
          .ask({
            method: 'POST',
            path: '',
            headers: { ...givenHeaders(context, DIALECT_HEADERS.messages), ...asked.headers },
            body: bytes,
            signal: abort.signal,
            reserve: slot.reserve,
          })
          .catch((error: unknown) => {
            throw error instanceof EndpointError ? countErrorOf(error, asked) : error
          })
        const counted = COUNT_REPLY.schema.safeParse(count)
        if (counted.success) return counted.data
        throw new ApiError('provider_error', "The provider's answer has no count of tokens")
      },
    }),
  )
}

/** The headers contain the credential. */
type Asked = {
  readonly provider: string
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly isOperators: boolean
}

function whomToAsk(
  call: { readonly model: string; readonly callerCredential: string | null },
  { enclaves, credentials }: Pick<CountParts, 'enclaves' | 'credentials'>,
): Asked {
  const table = providersOf(enclaves)
  if (table.length === 0)
    throw new ApiError('enclave_unavailable', 'No enclave is connected that names its providers')
  const endpoint = endpointFor(table, call.model)
  const chosen = chooseCredential({ ...call, dialect: 'messages' }, table, credentials())
  const { provider, credential, isOperators } = chosen
  return {
    provider,
    url: `${endpoint.origin}${endpoint.path}/count_tokens`,
    headers: { 'content-type': 'application/json', ...credentialHeader(endpoint, credential) },
    isOperators,
  }
}

function endpointFor(table: readonly ProviderEntry[], model: string) {
  const entry = chooseProvider(table, model, 'messages')
  const endpoint = entry === null ? null : endpointOf(entry, 'messages')
  if (entry === null || endpoint === null)
    throw new ApiError('unsupported_model', unsupportedMessage(table, model, 'messages'))
  return { origin: entry.origin, ...endpoint }
}

/** Opens one client for each URL. The provider tables limit the number of URLs. */
function openEndpoints({
  providerCas: ca,
  onStarted,
}: Pick<CountParts, 'providerCas' | 'onStarted'>): (url: string) => Endpoint {
  const opened = new Map<string, Endpoint>()
  onStarted(async () => {
    await Promise.all([...opened.values()].map((endpoint) => endpoint.close()))
  })
  return (url) => {
    const limits = { timeoutMs: TIMEOUT_MS, answerBytesMax: ANSWER_BYTES_MAX }
    const endpoint = opened.get(url) ?? createEndpoint({ url, ca, headers: {}, ...limits })
    opened.set(url, endpoint)
    return endpoint
  }
}

function countErrorOf(error: EndpointError, { provider, isOperators }: Asked): ApiError {
  const { refusal } = error
  if (refusal === null) return serviceCallErrorOf(error)
  const { status, message } = refusal
  const words = message ?? 'no reason given'
  if (status === 404)
    return new ApiError('not_found', `${provider} does not count these tokens: ${words}`)
  const isCallers = !isOperators && (status === 401 || status === 403)
  if (!isCallers && !concernsRequest(status)) return serviceCallErrorOf(error)
  // The caller made the mistake, not the service, so the error is not logged.
  return requestRefused({ ...refusal, code: null })
}
