import { z } from 'zod'
import { createKey, keysQuery } from '../../../accounts/key-request.ts'
import { keyList, managedKey, newKey, rateLimits } from '../../../accounts/replies.ts'
import { embeddingRequest } from '../../../embeddings/embedding-request.ts'
import { attestationQuery } from '../../../enclaves/attestation-query.ts'
import { searchRequest } from '../../../search/search-request.ts'
import {
  apiInformation,
  attestationReply,
  embeddingList,
  health,
  model,
  modelList,
  notaryList,
  readiness,
  searchResults,
} from '../../service-replies.ts'
import type { Operation } from '../operation.ts'
import { credential } from './completions.ts'
import { upstreamErrors } from './upstream-errors.ts'

const service = { method: 'GET', tag: 'Service', isKeyed: false } satisfies Partial<Operation>
const account = { method: 'GET', tag: 'Account', isKeyed: true } satisfies Partial<Operation>

/** What the service says of itself, what it serves beside chat, and accounts' keys and limits. */
export const serviceOperations: readonly Operation[] = [
  {
    ...service,
    path: '/',
    summary: 'What this is',
    reply: { name: 'ApiInformation', schema: apiInformation },
  },
  { ...service, path: '/v1/models', summary: 'Models', reply: { name: 'ModelList', schema: modelList } },
  {
    ...service,
    path: '/v1/models/*model',
    summary: 'One model',
    description: 'The id may have slashes.',
    pathParameters: z.object({ model: z.string() }),
    reply: { name: 'Model', schema: model },
    errors: ['not_found'],
  },
  {
    ...service,
    path: '/v1/verified/models',
    summary: 'Models that can be verified now',
    description:
      "Of providers whose credential is there; with a Fine-Tune-Authorization of the caller's own, of every provider. A provider may serve more: ids of its patterns are listed when the operator names them, or when a completion of theirs was made.",
    headers: z.object({ 'Fine-Tune-Authorization': credential }),
    reply: { name: 'ModelList', schema: modelList },
  },
  {
    ...service,
    path: '/v1/verified/models/*model',
    summary: 'One model that can be verified now',
    description: 'The id may have slashes.',
    pathParameters: z.object({ model: z.string() }),
    headers: z.object({ 'Fine-Tune-Authorization': credential }),
    reply: { name: 'Model', schema: model },
    errors: ['not_found'],
  },
  {
    ...service,
    path: '/v1/attestation',
    summary: "An enclave's attestation document, fresh over a nonce",
    query: attestationQuery,
    reply: { name: 'Attestation', schema: attestationReply },
    errors: ['enclave_unavailable', 'not_found', 'overloaded'],
  },
  {
    ...service,
    path: '/v1/notaries',
    summary: 'The notaries of all enclaves in use, with their attestation documents',
    reply: { name: 'NotaryList', schema: notaryList },
  },
  { ...service, path: '/healthz', summary: 'The process answers', reply: { name: 'Health', schema: health } },
  {
    ...service,
    path: '/readyz',
    summary: 'Verified completions can be served',
    reply: { name: 'Readiness', schema: readiness },
    errors: ['not_ready'],
  },
  {
    method: 'POST',
    path: '/v1/embeddings',
    tag: 'Embeddings',
    summary: 'Vectors of texts',
    isKeyed: true,
    scope: 'inference',
    body: { name: 'EmbeddingRequest', schema: embeddingRequest },
    reply: { name: 'EmbeddingList', schema: embeddingList },
    errors: ['rate_limit_exceeded', 'unsupported_model', ...upstreamErrors],
  },
  {
    method: 'POST',
    path: '/v1/tool/search',
    tag: 'Search',
    summary: 'Search the web',
    isKeyed: true,
    scope: 'inference',
    body: { name: 'SearchRequest', schema: searchRequest },
    reply: { name: 'SearchResults', schema: searchResults },
    errors: ['rate_limit_exceeded', 'search_not_configured', ...upstreamErrors],
  },
  {
    ...account,
    path: '/v1/dashboard/rate-limits',
    summary: 'Limits, and what was used of them',
    reply: { name: 'RateLimits', schema: rateLimits },
  },
  {
    ...account,
    path: '/v1/dashboard/keys',
    summary: 'API keys',
    query: keysQuery,
    reply: { name: 'KeyList', schema: keyList },
    errors: ['insufficient_scope'],
  },
  {
    ...account,
    method: 'POST',
    path: '/v1/dashboard/keys',
    summary: 'Make an API key',
    body: { name: 'CreateKeyRequest', schema: createKey },
    reply: { name: 'NewKey', schema: newKey },
    errors: ['insufficient_scope', 'limit_reached'],
  },
  {
    ...account,
    method: 'DELETE',
    path: '/v1/dashboard/keys/:id',
    summary: 'Revoke an API key',
    pathParameters: z.object({ id: z.string() }),
    reply: { name: 'Key', schema: managedKey },
    errors: ['not_found', 'insufficient_scope'],
  },
]
