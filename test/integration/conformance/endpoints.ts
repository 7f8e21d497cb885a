import { NODE_HARDWARE } from '../../support/register-node.ts'
import { CHAT, PLAIN_CHAT_ROWS, VERIFIED_CHAT_ROWS } from './chat-rows.ts'
import type { FieldRow } from './field-row.ts'
import {
  EDIT,
  EDIT_ROWS,
  EMBEDDING,
  EMBEDDING_ROWS,
  GENERATION,
  GENERATION_ROWS,
  SEARCH,
  SEARCH_ROWS,
} from './media-rows.ts'
import type { ReplyFields } from './missing-fields.ts'
import { BENCHMARK_ROWS, CREATE_NODE_ROWS, NODE_INFO_ROWS, UPDATE_NODE_ROWS } from './node-rows.ts'
import { BENCHMARK_QUERY_ROWS, HISTORY_ROWS, hashRows, NODE_QUERY_ROWS } from './parameter-rows.ts'
import * as fields from './reply-fields.ts'

/** The contents of the service before the walk. */
export type KnownFacts = {
  /** Hash of a completion. */
  readonly hash: string
  /** A connected node that serves `SERVED_MODEL`, and has served more than ten calls. */
  readonly servingNode: string
  /** A node that never connected. */
  readonly idleNode: string
}

/** The place of fields in a request. */
export type FieldPlace = 'body' | 'query' | 'path'

/** A request by its members: the members of the body, and the texts of its parameters. */
export type EndpointRequest = Partial<
  Readonly<Record<FieldPlace, Readonly<Record<string, unknown>>>>
>

/** An endpoint of the interface's part 4. */
export type Endpoint = {
  readonly method: 'GET' | 'POST' | 'PUT'
  readonly path: string
  readonly isKeyed: boolean
  /** The scope that its key needs; null: any key. A rule of this service (part 5, rule 6). */
  readonly scope: 'inference' | 'nodes' | null
  /** The section of the interface with the fields; `facts` where that section says "not shown". */
  readonly section: string
  /** Whether the body is a form. */
  readonly isForm?: true
  /** The smallest valid request; empty without a body. */
  readonly request?: (known: KnownFacts) => EndpointRequest
  readonly rows?: (known: KnownFacts) => Partial<Readonly<Record<FieldPlace, readonly FieldRow[]>>>
  /** The members of the answer to the smallest request. */
  readonly reply: ReplyFields
}

export const PLAIN_CHAT = '/v1/chat/completions'
export const DASHBOARD_CHAT = '/v1/dashboard/chat/completions'
export const VERIFIED_CHAT = '/v1/verified/chat/completions'
export const VERIFIED_RECORD = `${VERIFIED_CHAT}/{hash}`
export const CHAT_PATHS = [PLAIN_CHAT, DASHBOARD_CHAT, VERIFIED_CHAT] as const

/** The model of the serving node. */
export const SERVED_MODEL = 'conformance/served'

const chat = {
  method: 'POST',
  isKeyed: true,
  scope: 'inference',
  request: () => ({ body: CHAT }),
  rows: () => ({ body: PLAIN_CHAT_ROWS }),
} as const
const get = { method: 'GET', isKeyed: true, scope: null } as const
const ofInference = { method: 'GET', isKeyed: true, scope: 'inference' } as const
const ofNodes = { method: 'GET', isKeyed: true, scope: 'nodes' } as const
const nodeQuery = {
  request: ({ servingNode }: KnownFacts) => ({ query: { node_id: servingNode } }),
  rows: () => ({ query: NODE_QUERY_ROWS }),
}

/** Every row of part 4, in its order. A test compares the two. */
export const ENDPOINTS: readonly Endpoint[] = [
  { ...chat, path: PLAIN_CHAT, section: '2.1', reply: fields.COMPLETION_FIELDS },
  { ...chat, path: DASHBOARD_CHAT, section: '2.1', reply: fields.COMPLETION_FIELDS },
  {
    ...chat,
    path: VERIFIED_CHAT,
    section: '2.1, 2.3',
    rows: () => ({ body: VERIFIED_CHAT_ROWS }),
    reply: fields.VERIFIED_FIELDS,
  },
  {
    ...ofInference,
    path: VERIFIED_CHAT,
    section: '2.4, part 4',
    request: () => ({ query: { limit: '1' } }),
    rows: () => ({ query: HISTORY_ROWS }),
    reply: fields.RECORD_LIST_FIELDS,
  },
  {
    ...ofInference,
    path: VERIFIED_RECORD,
    section: '2.4',
    request: ({ hash }) => ({ path: { hash } }),
    rows: ({ hash }) => ({ path: hashRows(hash) }),
    reply: fields.RECORD_FIELDS,
  },
  {
    ...ofInference,
    method: 'POST',
    path: '/v1/images/generations',
    section: '2.5',
    request: () => ({ body: GENERATION }),
    rows: () => ({ body: GENERATION_ROWS }),
    reply: fields.IMAGE_FIELDS,
  },
  {
    ...ofInference,
    method: 'POST',
    path: '/v1/images/edits',
    section: '2.5',
    isForm: true,
    request: () => ({ body: EDIT }),
    rows: () => ({ body: EDIT_ROWS }),
    reply: fields.IMAGE_FIELDS,
  },
  {
    ...ofInference,
    method: 'POST',
    path: '/v1/embeddings',
    section: '2.6',
    request: () => ({ body: EMBEDDING }),
    rows: () => ({ body: EMBEDDING_ROWS }),
    reply: fields.EMBEDDING_FIELDS,
  },
  {
    ...ofInference,
    method: 'POST',
    path: '/v1/tool/search',
    section: 'facts',
    request: () => ({ body: SEARCH }),
    rows: () => ({ body: SEARCH_ROWS }),
    reply: fields.SEARCH_FIELDS,
  },
  {
    ...ofNodes,
    path: '/v1/node/info',
    section: '2.7',
    ...nodeQuery,
    reply: fields.NODE_INFO_FIELDS,
  },
  {
    ...ofNodes,
    method: 'POST',
    path: '/v1/node/info',
    section: 'facts',
    request: ({ idleNode }) => ({ body: { node_id: idleNode, ...NODE_HARDWARE } }),
    rows: () => ({ body: NODE_INFO_ROWS }),
    reply: fields.DONE_FIELDS,
  },
  {
    ...ofNodes,
    path: '/v1/node/stats',
    section: '2.7',
    ...nodeQuery,
    reply: fields.NODE_STATS_FIELDS,
  },
  {
    ...ofNodes,
    path: '/v1/node/benchmark',
    section: '2.7',
    request: ({ servingNode }) => ({ query: { node_id: servingNode, model: SERVED_MODEL } }),
    rows: () => ({ query: BENCHMARK_QUERY_ROWS }),
    reply: fields.BENCHMARK_FIELDS,
  },
  {
    ...ofNodes,
    method: 'POST',
    path: '/v1/node/benchmark',
    section: 'facts',
    request: ({ idleNode }) => ({
      body: { node_id: idleNode, model_name: 'm', tokens_per_second: 5 },
    }),
    rows: () => ({ body: BENCHMARK_ROWS }),
    reply: fields.DONE_FIELDS,
  },
  { ...get, path: '/v1/network/stats', section: 'facts', reply: fields.NETWORK_FIELDS },
  {
    ...ofNodes,
    method: 'POST',
    path: '/v1/dashboard/node',
    section: '2.7',
    request: () => ({ body: { node_name: 'my node' } }),
    rows: () => ({ body: CREATE_NODE_ROWS }),
    reply: fields.CREATED_NODE_FIELDS,
  },
  {
    ...ofNodes,
    method: 'PUT',
    path: '/v1/dashboard/node',
    section: 'facts',
    request: ({ idleNode }) => ({ body: { node_id: idleNode } }),
    rows: () => ({ body: UPDATE_NODE_ROWS }),
    reply: fields.UPDATED_NODE_FIELDS,
  },
  {
    ...ofNodes,
    path: '/v1/dashboard/nodes',
    section: '2.7, facts',
    reply: fields.NODE_LIST_FIELDS,
  },
  {
    ...ofInference,
    path: '/v1/dashboard/rate-limits',
    section: 'facts',
    reply: fields.RATE_LIMIT_FIELDS,
  },
  { ...get, path: '/v1/models', isKeyed: false, section: 'facts', reply: fields.MODEL_FIELDS },
  { ...get, path: '/', isKeyed: false, section: '2.8', reply: fields.INFORMATION_FIELDS },
]
