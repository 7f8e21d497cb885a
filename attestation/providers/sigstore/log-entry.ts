import {
  decodeBase64,
  encodeBase64,
  encodeHex,
  encodeUtf8,
  equalBytes,
  sha256,
} from '../../bytes.ts'
import { FormatError, ProofError } from '../../errors.ts'
import { canonicalizeJson } from '../../json/canonical.ts'
import { memberAt } from '../../json/value.ts'
import { hashLeaf } from '../../merkle/hash.ts'
import { verifyInclusion } from '../../merkle/verify.ts'
import { pointOf } from '../../nitro/certificate.ts'
import { decodeDer } from '../../nitro/der.ts'
import { type EcdsaKey, importPoint, P256 } from '../../nitro/ecdsa.ts'
import { isSignedWith } from './der-signature.ts'
import { type LogEntry, readBundleJson, type SigstoreBundle } from './sigstore-bundle.ts'
import { refuseBundle } from './sigstore-codes.ts'
import type { SigstoreTrust } from './sigstore-trust.ts'

type TrustedLog = { readonly key: EcdsaKey; readonly id: Uint8Array }

/**
 * Verifies that a trusted log signed a promise to include the bundle's entry (the signed entry
 * timestamp, Rekor API version 1), and that the entry has the bundle's statement, signature and
 * certificate. The signature existed at the entry's time. Throws ProviderEvidenceError.
 */
export async function verifyLogEntry(
  bundle: SigstoreBundle,
  { logs }: Pick<SigstoreTrust, 'logs'>,
): Promise<TrustedLog> {
  const { entry } = bundle
  const log = await findLog(entry.logId, logs)
  const promised = canonicalizeJson({
    body: entry.bodyText,
    integratedTime: entry.integratedTime,
    logID: encodeHex(entry.logId),
    logIndex: entry.logIndex,
  })
  if (!(await isSignedWith(log.key, entry.promise, encodeUtf8(promised))))
    throw refuseBundle('entry_promise', 'expected an entry that the log promised')
  checkBody(bundle)
  return log
}

async function findLog(logId: Uint8Array, logs: SigstoreTrust['logs']): Promise<TrustedLog> {
  const der = logs.find((one) => equalBytes(sha256(one), logId))
  const key = der && (await importPoint(pointOf(decodeDer(der), 'log', P256), P256))
  if (!key) throw refuseBundle('log_unknown', 'expected an entry of a trusted log')
  return { key, id: logId }
}

/** Without this check, a bundle could have any entry of the log. */
function checkBody({ entry, payload, signature, certificate }: SigstoreBundle): void {
  if (entry.kind !== 'dsse' || entry.version !== '0.0.1')
    throw refuseBundle('entry_kind', 'expected an entry of kind dsse, version 0.0.1')
  const body = readBundleJson(entry.body, 'entry_mismatch')
  const at = (...path: readonly string[]) => memberAt(body, ...path)
  const signatures = at('spec', 'signatures')
  const [signed, ...others] = Array.isArray(signatures) ? signatures : []
  const isOfBundle =
    at('kind') === entry.kind &&
    at('apiVersion') === entry.version &&
    at('spec', 'payloadHash', 'algorithm') === 'sha256' &&
    at('spec', 'payloadHash', 'value') === encodeHex(sha256(payload)) &&
    others.length === 0 &&
    memberAt(signed, 'signature') === encodeBase64(signature) &&
    isPemOf(memberAt(signed, 'verifier'), certificate)
  if (!isOfBundle)
    throw refuseBundle('entry_mismatch', 'expected the entry of this statement and certificate')
}

function isPemOf(base64: unknown, certificate: Uint8Array): boolean {
  if (typeof base64 !== 'string') return false
  try {
    const pem = new TextDecoder().decode(decodeBase64(base64))
    const [, body] =
      /^-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/=\n]+)\n-----END CERTIFICATE-----\n$/.exec(pem) ??
      []
    return body?.replaceAll('\n', '') === encodeBase64(certificate)
  } catch (fault) {
    if (fault instanceof FormatError) return false
    throw fault
  }
}

/**
 * Verifies that the entry is in the log's tree, under a tree head that `log` signed (a checkpoint,
 * C2SP tlog-checkpoint). Throws ProviderEvidenceError.
 */
export async function verifyLogInclusion(
  { proof, body }: LogEntry,
  log: TrustedLog,
): Promise<void> {
  await verifyCheckpoint(proof, log)
  try {
    const head = { size: proof.size, root: proof.root }
    verifyInclusion({ leafHash: hashLeaf(body), index: proof.index, head, path: proof.path })
  } catch (fault) {
    if (fault instanceof FormatError || fault instanceof ProofError)
      throw refuseBundle('not_included', 'expected a path from the entry to the root')
    throw fault
  }
}

/** The head's text ends with an empty line. Each signature follows on its own line. */
const CHECKPOINT = /^((?:[^\n]+\n){3,8})\n((?:\u2014 [^\n ]+ [A-Za-z0-9+/=]+\n)+)$/
const HINT_BYTES = 4

async function verifyCheckpoint(
  { checkpoint, size, root }: LogEntry['proof'],
  { key, id }: TrustedLog,
): Promise<void> {
  const [, text, lines] = checkpoint.length > 8_192 ? [] : (CHECKPOINT.exec(checkpoint) ?? [])
  if (text === undefined || lines === undefined)
    throw refuseBundle('checkpoint_malformed', 'expected a head of a log and its signatures')
  const signatures = lines
    .trimEnd()
    .split('\n')
    .map((line) => signatureIn(line.split(' ')[2]))
  const own = signatures.find((one) =>
    equalBytes(one.subarray(0, HINT_BYTES), id.subarray(0, HINT_BYTES)),
  )
  const signature = own?.slice(HINT_BYTES)
  if (!signature || !(await isSignedWith(key, signature, encodeUtf8(text))))
    throw refuseBundle('checkpoint_signature', "expected a head with the log's signature")
  const [, statedSize, statedRoot] = text.split('\n')
  if (statedSize !== String(size) || statedRoot !== encodeBase64(root))
    throw refuseBundle('checkpoint_mismatch', 'expected the head of the size and root of the proof')
}

function signatureIn(base64 = ''): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(decodeBase64(base64))
  } catch (fault) {
    if (fault instanceof FormatError) return new Uint8Array()
    throw fault
  }
}
