import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { decodeBase64 } from '#attestation/bytes.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'

const BUNDLE = join(import.meta.dirname, '../vectors/evidence/bundle.json')

/**
 * Arguments of an `affidavit verify` that finds a bundle verified. Writes its root to the folder.
 */
export function wordsOfVerify(folder: string): readonly string[] {
  const root = join(folder, 'root.der')
  const { record } = JSON.parse(readFileSync(BUNDLE, 'utf8'))
  const [certificate] = decodeAttestationPayload(decodeBase64(record.attestation)).cabundle
  writeFileSync(root, certificate ?? new Uint8Array())
  return ['verify', BUNDLE, '--root', root, '--any-measurement']
}
