import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { needShared } from './needs.ts'

const folder = join(import.meta.dirname, '../../../shared/fixtures/providers')

/** Whether the real evidence of providers, which is not part of this repository, is there. */
export const PROVIDER_FIXTURES = needShared(existsSync(join(folder, 'manifest.json')))

/** Bytes of one fixture: `snp/gosev-attestation.bin`. */
export function readProviderFixture(file: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(readFileSync(join(folder, file)))
}

/** The text of one fixture. */
export function readProviderText(file: string): string {
  return readFileSync(join(folder, file), 'utf8')
}

/** The certificates of a PEM fixture, DER, in its order. */
export function readProviderPem(file: string): readonly Uint8Array<ArrayBuffer>[] {
  const blocks = readProviderText(file).matchAll(
    /-----BEGIN CERTIFICATE-----([^-]*)-----END CERTIFICATE-----/g,
  )
  return [...blocks].map(([, base64 = '']) => new Uint8Array(Buffer.from(base64, 'base64')))
}
