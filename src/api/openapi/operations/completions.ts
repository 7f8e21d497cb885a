import { z } from 'zod'
import { CALLER_MEMBER, CALLER_NONCE_FORM } from '../../../../attestation/completion-hash.ts'
import { IDEMPOTENCY_KEY_LENGTH_MAX } from '../../../accounts/idempotency-key.ts'
import { chatRequest } from '../../../chat/chat-request.ts'
import { chatChunk, chatCompletion } from '../../../verified/completion-replies.ts'
import { hashParameter, historyQuery } from '../../../verified/history-query.ts'
import { CREDENTIAL_LENGTH_MAX } from '../../../verified/provider-credential.ts'
import {
  evidenceBundle,
  recordList,
  storedRecord,
  verifiedCompletion,
} from '../../../verified/record-replies.ts'
import type { Operation } from '../operation.ts'

const idempotencyKey = z
  .string()
  .min(1)
  .max(IDEMPOTENCY_KEY_LENGTH_MAX)
  .describe('Names the call, so that it is made once: the same key and body are answered with what is stored')
  .optional()

/** Header Fine-Tune-Authorization. */
export const credential = z
  .string()
  .max(CREDENTIAL_LENGTH_MAX)
  .describe("`Bearer <PROVIDER_API_KEY>`: the caller's own credential at the provider")
  .optional()

const body = { name: 'ChatCompletionRequest', schema: chatRequest }
const verifiedBody = {
  name: 'VerifiedChatCompletionRequest',
  schema: chatRequest.safeExtend({
    [CALLER_MEMBER]: z
      .strictObject({ nonce: z.string().regex(CALLER_NONCE_FORM) })
      .describe(
        'A nonce of the caller, 16 to 64 bytes in hex: hashed with the request, not sent to the provider. ' +
          "The receipt's `attempt` then says how often this very call was made.",
      )
      .nullish(),
  }),
}
const events = { name: 'ChatCompletionChunk', schema: chatChunk }
const record = { name: 'StoredCompletion', schema: storedRecord }

const idempotencyErrors = [
  'idempotency_in_progress',
  'idempotency_key_reused',
  'idempotency_outcome_unknown',
] as const

const plain = {
  method: 'POST',
  tag: 'Chat',
  isKeyed: true,
  scope: 'inference',
  headers: z.object({ 'Idempotency-Key': idempotencyKey }),
  body,
  reply: { name: 'ChatCompletion', schema: chatCompletion },
  events,
  errors: [
    ...idempotencyErrors,
    ...(['rate_limit_exceeded', 'unsupported_model', 'no_available_inference_nodes'] as const),
    ...(['node_refused', 'node_error', 'node_timeout', 'overloaded'] as const),
  ],
} satisfies Partial<Operation>

/** Chat completions, and what is stored of the verified ones. */
export const completionOperations: readonly Operation[] = [
  { ...plain, path: '/v1/chat/completions', summary: 'Complete a chat on a contributed node' },
  { ...plain, path: '/v1/dashboard/chat/completions', summary: 'The same, for a dashboard' },
  {
    method: 'POST',
    path: '/v1/verified/chat/completions',
    tag: 'Verified chat',
    summary: 'Complete a chat at an external provider, with evidence',
    description:
      'The answer is hashed and signed inside the enclave, and stored with its anchor, before it is given. Streamed, the proof is in the last chunk. ' +
      'This gateway reads request, answer and provider credential: the evidence shows that these words were exchanged, not who asked.',
    isKeyed: true,
    scope: 'inference',
    headers: z.object({ 'Idempotency-Key': idempotencyKey, 'Fine-Tune-Authorization': credential }),
    body: verifiedBody,
    reply: { name: 'VerifiedCompletion', schema: verifiedCompletion },
    events,
    errors: [
      ...idempotencyErrors,
      ...(['rate_limit_exceeded', 'unsupported_model', 'provider_credential_missing'] as const),
      ...(['provider_refused', 'provider_error', 'provider_unreachable', 'provider_timeout'] as const),
      ...(['enclave_unavailable', 'commit_delayed', 'completion_lost', 'overloaded'] as const),
    ],
  },
  {
    method: 'GET',
    path: '/v1/verified/chat/completions',
    tag: 'Verified chat',
    summary: 'List stored completions, newest first',
    isKeyed: true,
    scope: 'inference',
    query: historyQuery,
    reply: { name: 'StoredCompletionList', schema: recordList },
    errors: ['history_restricted'],
  },
  {
    method: 'GET',
    path: '/v1/verified/chat/completions/:hash',
    tag: 'Verified chat',
    summary: 'One stored completion by its hash',
    isKeyed: true,
    scope: 'inference',
    pathParameters: hashParameter,
    reply: record,
    errors: ['not_found'],
  },
  {
    method: 'GET',
    path: '/v1/verified/chat/completions/:hash/evidence',
    tag: 'Verified chat',
    summary: 'Everything that an offline check of one completion needs',
    isKeyed: true,
    scope: 'inference',
    pathParameters: hashParameter,
    reply: { name: 'EvidenceBundle', schema: evidenceBundle },
    errors: ['not_found'],
  },
]
