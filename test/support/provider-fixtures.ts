import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { decodeHex } from '#attestation/bytes.ts'
import type { TdxCollateral } from '#attestation/providers/tdx/collateral.ts'
import { needShared } from './needs.ts'

const folder = join(import.meta.dirname, '../../../shared/fixtures/providers')

/** Whether the fixtures, which are not part of this repository, are there. */
export const PROVIDER_FIXTURES = needShared(existsSync(join(folder, 'manifest.json')))

/** Files of the shared fixtures, by the beginning of their names. Empty where they are missing. */
export function listProviderFixtures(prefix: string): readonly string[] {
  if (!PROVIDER_FIXTURES.isMet) return []
  const { files } = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'))
  return files
    .map(({ file }: { readonly file: string }) => file)
    .filter((file: string) => file.startsWith(prefix))
}

/** Bytes of one fixture; of hex text where the name ends in `.hex`. */
export function readProviderFixture(file: string): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(readFileSync(join(folder, file)))
  if (!file.endsWith('.hex')) return bytes
  return new Uint8Array(decodeHex(Buffer.from(bytes).toString().trim()))
}

/** Collateral in the form of dcap-qvl: texts, signatures and lists in hex. */
export function readTdxCollateral(file: string): TdxCollateral {
  const parts = JSON.parse(Buffer.from(readProviderFixture(file)).toString())
  const hex = (name: string) => new Uint8Array(decodeHex(parts[name]))
  const textOf = (name: string) => ({
    signed: new Uint8Array(Buffer.from(parts[name])),
    signature: hex(`${name}_signature`),
    issuerChain: parts[`${name}_issuer_chain`],
  })
  return {
    tcbInfo: textOf('tcb_info'),
    qeIdentity: textOf('qe_identity'),
    rootCrl: hex('root_ca_crl'),
    pckCrl: hex('pck_crl'),
    evaluationNumbers: null,
  }
}
