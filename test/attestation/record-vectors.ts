import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { completionDigest } from '../../attestation/account.ts'
import { decodeHex, encodeHex } from '../../attestation/bytes.ts'
import { hashChunks } from '../../attestation/completion-hash.ts'
import type { Json, JsonObject } from '../../attestation/json/value.ts'
import { hashReceipt, parseLogProof } from '../../attestation/log-proof.ts'
import { parseReceipt } from '../../attestation/receipt.ts'
import { treeHeadDigest } from '../../attestation/tree-head.ts'
import { type RecordReport, verifyRecord } from '../../attestation/verify-record.ts'
import { splitEvents, verifyStream } from '../../attestation/verify-stream.ts'
import { type BuiltRecord, buildRecord, NOTARY } from './build-record.ts'
import { CHUNKS, keptStreams } from './kept-streams.ts'

/*
 * Makes test/vectors/records/second (a record with a receipt of version 2, in both its forms, with
 * every value on the way) and test/vectors/streams/kept.json (streams as they were kept, with what
 * a check of them finds). Run with node. records/first, of version 1, is from before and stays as
 * it is.
 */

const FOLDER = join(import.meta.dirname, '../vectors')

const second = buildRecord()
mkdirSync(join(FOLDER, 'records/second'), { recursive: true })
write('records/second/request.json', second.request)
write('records/second/stored.json', second.stored)
write('records/second/created.json', second.created)
write('records/second/values.json', describeValues(second))
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
      'Every value on the way from stored.json to its verdict, for writers of a second verifier; hex, as README.md of attestation/ defines them',
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
