import type { StoredRecord } from './records-store.ts'
import { echoRequest } from './request-echo.ts'

/*
 * JSON texts of records, spliced and not serialised: the response stands in them byte for byte as it was hashed, and a
 * 32 MiB answer is not parsed to be sent. The spliced values are hex, base64 and canonical JSON that the committer
 * verified, so none of them needs an escape.
 */

/**
 * Create response (interface, 2.3): the response with the proof members after its own, `receipt`
 * and `log` too.
 */
export function createReplyText(record: StoredRecord): string {
  return withMembers(record.response, `${proofText(record)},${logMember(record)}`)
}

/** The last chunk of a stream (canonical JSON text) with the same members after its own. */
export function lastChunkText(chunk: string, record: StoredRecord): string {
  return withMembers(chunk, `${proofText(record)},${logMember(record)}`)
}

/**
 * Stored record (interface, 2.4), with `receipt` and `log`, and `reanchored` when its head was
 * anchored again.
 */
export function recordText(record: StoredRecord): string {
  const request = JSON.stringify(echoRequest(record.request))
  const { id, response, createdAt } = record
  const members = `"id":"${id}","request":${request},"response":${response}`
  const again = record.reanchored.length === 0 ? '' : `"reanchored":${JSON.stringify(record.reanchored)},`
  return `{${members},${proofText(record)},${again}"created_at":${createdAt},${logMember(record)}}`
}

/**
 * A chunk of its own for the proof, with empty choices, for streams of enclaves of protocol version
 * 1, which do not hold the last chunk back. Its `usage` is null as in all chunks; left out for a
 * caller who asked for usage, whose SDK would take the null over the usage that came before.
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
  return lastChunkText(JSON.stringify(head), record)
}

function withMembers(object: string, members: string): string {
  return object === '{}' ? `{${members}}` : `${object.slice(0, -1)},${members}}`
}

function proofText(record: StoredRecord): string {
  const { hash, publicKey, signature, txHash, attestation, receipt } = record
  const fields = `"hash":"${hash}","public_key":"${publicKey}","signature":"${signature}","tx_hash":"${txHash}"`
  return `${fields},"attestation":"${attestation}","receipt":${receipt}`
}

function logMember({ logProof }: StoredRecord): string {
  const { size, root, signature, path, chainId, contract } = logProof
  return `"log":${JSON.stringify({ size, root, signature, path, chain_id: chainId, contract })}`
}
