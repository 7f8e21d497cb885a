import type { StoredRecord } from '../stores/records.ts'
import { echoRequest } from './request-echo.ts'

/*
 * JSON texts of records, spliced and not serialised: the response stands in them byte for byte as it was hashed, and a
 * 32 MiB answer is not parsed to be sent. The spliced values are hex, base64 and canonical JSON that the committer
 * verified, so none of them needs an escape.
 */

/**
 * Create response (interface, 2.3): the response with the proof members after its own. No `log`: whoever strips the proof
 * members that the design names must be left with what was hashed.
 */
export function createReplyText(record: StoredRecord): string {
  return withMembers(record.response, proofText(record))
}

/** Stored record (interface, 2.4), with `receipt` and `log`. */
export function recordText(record: StoredRecord): string {
  const request = JSON.stringify(echoRequest(record.request))
  const { id, response, createdAt } = record
  const members = `"id":"${id}","request":${request},"response":${response}`
  return `{${members},${proofText(record)},"created_at":${createdAt},"log":${logText(record)}}`
}

/**
 * Last chunk of a stream, with empty choices and the proof members. Its `usage` is null as in all chunks; left out for
 * a caller who asked for usage, whose SDK would take the null over the usage that came before.
 */
export function proofChunkText(
  record: StoredRecord,
  { includesUsage }: { readonly includesUsage: boolean },
): string {
  const { id, created, model } = JSON.parse(record.response) as Readonly<Record<string, unknown>>
  const head = {
    id,
    object: 'chat.completion.chunk',
    created,
    model,
    choices: [],
    ...(includesUsage ? {} : { usage: null }),
  }
  return withMembers(JSON.stringify(head), proofText(record))
}

function withMembers(object: string, members: string): string {
  return object === '{}' ? `{${members}}` : `${object.slice(0, -1)},${members}}`
}

function proofText(record: StoredRecord): string {
  const { hash, publicKey, signature, txHash, attestation, receipt } = record
  const fields = `"hash":"${hash}","public_key":"${publicKey}","signature":"${signature}","tx_hash":"${txHash}"`
  return `${fields},"attestation":"${attestation}","receipt":${receipt}`
}

function logText({ logProof }: StoredRecord): string {
  const { size, root, signature, path, chainId, contract } = logProof
  return JSON.stringify({ size, root, signature, path, chain_id: chainId, contract })
}
