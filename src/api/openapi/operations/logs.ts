import {
  consistencyQuery,
  headsQuery,
  inclusionQuery,
  leavesQuery,
  logsQuery,
  notaryParameter,
  recordsQuery,
} from '../../../verified/log-query.ts'
import {
  bootStatement,
  consistencyProof,
  headList,
  inclusionProof,
  leafList,
  log,
  logList,
  logRecordList,
} from '../../../verified/log-replies.ts'
import type { Operation } from '../operation.ts'

const ofLog = {
  method: 'GET',
  tag: 'Logs',
  isKeyed: false,
  pathParameters: notaryParameter,
  errors: ['not_found', 'not_ready', 'overloaded'],
} satisfies Partial<Operation>

/** The notaries' logs. */
export const logOperations: readonly Operation[] = [
  {
    method: 'GET',
    path: '/v1/log',
    tag: 'Logs',
    summary: 'All logs',
    isKeyed: false,
    errors: ['not_ready', 'overloaded'],
    query: logsQuery,
    reply: { name: 'LogList', schema: logList },
  },
  { ...ofLog, path: '/v1/log/:notary', summary: 'One log', reply: { name: 'Log', schema: log } },
  {
    ...ofLog,
    path: '/v1/log/:notary/boot-statement',
    summary: 'What its enclave stated of the logs before it',
    reply: { name: 'BootStatement', schema: bootStatement },
  },
  {
    ...ofLog,
    path: '/v1/log/:notary/heads',
    summary: 'Signed heads with their anchors, and attested states',
    query: headsQuery,
    reply: { name: 'HeadList', schema: headList },
  },
  {
    ...ofLog,
    path: '/v1/log/:notary/inclusion',
    summary: 'Proof that a leaf is in the log',
    query: inclusionQuery,
    reply: { name: 'InclusionProof', schema: inclusionProof },
  },
  {
    ...ofLog,
    path: '/v1/log/:notary/consistency',
    summary: 'Proof that the log only grew',
    query: consistencyQuery,
    reply: { name: 'ConsistencyProof', schema: consistencyProof },
  },
  {
    ...ofLog,
    path: '/v1/log/:notary/leaves',
    summary: 'Hashes of leaves',
    query: leavesQuery,
    reply: { name: 'LeafList', schema: leafList },
  },
  {
    ...ofLog,
    path: '/v1/log/:notary/records',
    summary: "Records of leaves, those that the key's account may see",
    isKeyed: true,
    scope: 'inference',
    query: recordsQuery,
    reply: { name: 'LogRecordList', schema: logRecordList },
  },
]
