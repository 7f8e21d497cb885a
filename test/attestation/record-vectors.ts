import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { completionDigest } from '#attestation/account.ts'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { digestCredential } from '#attestation/demands.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { hashReceipt } from '#attestation/log-proof.ts'
import { parseLogProof } from '#attestation/log-proof-form.ts'
import { parseReceipt } from '#attestation/receipt.ts'
import { hashChunks } from '#attestation/record-hash.ts'
import { treeHeadDigest } from '#attestation/tree-head.ts'
import { type RecordReport, verifyRecord } from '#attestation/verify-record.ts'
import { splitEvents, verifyStream } from '#attestation/verify-stream.ts'
import { type BuiltRecord, buildRecord, NOTARY, REQUEST } from './build-record.ts'
import { CHUNKS, keptStreams } from './kept-streams.ts'

/*
 * Makes test/vectors/records/third (a record with a receipt of version 3, in both its forms, with
 * every value on the way) and test/vectors/streams/kept.json (streams as they were kept, with what
 * a check of them finds). Run with node. records/first and records/second, of version 1 and 2, are
 * from before and stay as they are.
 */

const FOLDER = join(import.meta.dirname, '../vectors')

const NONCE = '0123456789abcdef'.repeat(2)
/** What the caller demands: that the provider is shown its own credential. */
const demands = { nonce: NONCE, credential: { sha256: digestCredential(NONCE, 'sk-of-a-caller') } }
const third = buildRecord({ request: { ...REQUEST, affidavit: demands } })
mkdirSync(join(FOLDER, 'records/third'), { recursive: true })
write('records/third/request.json', third.request)
write('records/third/stored.json', third.stored)
write('records/third/created.json', third.created)
write('records/third/values.json', describeValues(third))
write('streams/kept.json', {
  source:
    'Streams as a caller kept them, with the body of their request: what each check of verifyStream finds, or the code it is refused with',
  stream_hash: { chunks: CHUNKS, stream_hash: hashChunks(CHUNKS) },
  kept: keptStreams().map(({ name, request, text }) => ({
    name,
    request,
    stream: text,
    ...judge(request, text),
  })),
})

function judge(request: JsonObject, text: string): JsonObject {
  try {
    const chunks = splitEvents(Buffer.from(text)).map((data): Json => JSON.parse(data))
    return describeReport(verifyStream(chunks, { request }))
  } catch (error) {
    if (!(error instanceof Error) || !('code' in error)) throw error
    return { refused: String(error.code) }
  }
}

function describeReport(report: RecordReport): JsonObject {
  const named = (outcome: string) =>
    report.checks.filter((check) => check.outcome === outcome).map(({ name }) => name)
  return { failed: named('failed'), not_checked: named('not checked') }
}

function describeValues({ stored }: BuiltRecord): JsonObject {
  const receipt = parseReceipt(stored.receipt ?? null)
  const log = parseLogProof(stored.log ?? null)
  const head = { size: log.size, root: decodeHex(log.root) }
  if (!verifyRecord(stored).ok) throw new Error('expected the vector to verify')
  return {
    source:
      'Every value on the way from stored.json to its verdict, for writers of a second verifier; hex, as attestation/formats.md defines them',
    request_hash: receipt.request_hash,
    response_hash: receipt.response_hash,
    hash: receipt.hash,
    completion_digest: encodeHex(completionDigest(decodeHex(receipt.hash))),
    notary: NOTARY.address.toLowerCase(),
    leaf: encodeHex(hashReceipt(receipt)),
    tree_head_digest: encodeHex(
      treeHeadDigest({ chainId: log.chain_id, contract: log.contract }, head),
    ),
  }
}

function write(name: string, value: Json): void {
  writeFileSync(join(FOLDER, name), `${JSON.stringify(value, null, 2)}\n`)
}
