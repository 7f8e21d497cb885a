import { constants, generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { availableParallelism } from 'node:os'
import { performance } from 'node:perf_hooks'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { verifySnpReport } from '#attestation/providers/snp/verify-snp-report.ts'
import { verifyTdxQuote } from '#attestation/providers/tdx/verify-tdx-quote.ts'
import { MADE_AT } from '../support/nitro-builder/development-pki.ts'
import { SNP_AT } from '../support/provider-builder/snp-pki.ts'
import { buildSnp } from '../support/provider-builder/snp-report-builder.ts'
import { buildTdxEvidence, TDX_POLICY } from '../support/provider-builder/tdx-builder.ts'

/**
 * `node test/bench/providers.ts`: cold judgements of a TDX quote with its collateral, and of an
 * SEV-SNP report by its VCEK, against bare WebCrypto verifications, one after the other. There are
 * two floors. One verifies with keys that were imported beforehand. The other imports each key of
 * the evidence first, as every verifier must that sees it for the first time. The policy pins the
 * root, so its key is known beforehand in both.
 *
 * TDX has 9 signatures of P-256 by 5 keys: 2 links of the PCK chain, QE report, quote, TCB signing
 * certificate, TCB info, QE identity, 2 lists. SEV-SNP has 2 of RSA-4096 (RSASSA-PSS) and 1 of
 * P-384, by 3 keys. All are measured in turns in one run, so that other load affects all alike. A
 * judgement verifies several at a time; the CPU time beside it shows its real cost.
 */
const ROUNDS = 400
const WARM_UP_ROUNDS = 100
/** Bytes that each signature is over: about as many as a certificate or a report has. */
const SIGNED = new Uint8Array(640)

const { subtle } = globalThis.crypto
type Algorithm = Parameters<typeof subtle.verify>[0]
type ImportAlgorithm = Parameters<typeof subtle.importKey>[2]
type Key = Parameters<typeof subtle.verify>[1]

type Signature = {
  importKey(): Promise<Key>
  verify(key: Key): Promise<boolean>
}

const tdx = buildTdxEvidence()
const snp = buildSnp()
console.log(`${availableParallelism()} cores, ${ROUNDS} rounds; medians, ms`)
await compare('TDX', {
  signatures: Array.from({ length: 9 }, () => ecdsa('P-256', 'SHA-256')),
  imports: 4,
  judge: async () => requireChecks((await verifyTdxQuote(tdx, TDX_POLICY, MADE_AT)).checks),
})
await compare('SEV-SNP', {
  signatures: [rsa(), rsa(), ecdsa('P-384', 'SHA-384')],
  imports: 2,
  judge: async () =>
    requireChecks((await verifySnpReport(snp.evidence, snp.policy, SNP_AT)).checks),
})

/** `imports`: keys of the evidence, without the root's. */
async function compare(
  name: string,
  {
    signatures,
    imports,
    judge,
  }: {
    readonly signatures: readonly Signature[]
    readonly imports: number
    judge(): Promise<void>
  },
): Promise<void> {
  const imported = await Promise.all(
    signatures.map(async (one) => ({ ...one, key: await one.importKey() })),
  )
  const verifyAll = async (newKeys: number) => {
    for (const [index, { key, importKey, verify }] of imported.entries()) {
      const isNew = index >= imported.length - newKeys
      if (!(await verify(isNew ? await importKey() : key))) throw new Error('expected it to hold')
    }
  }
  const subjects = {
    'known keys': () => verifyAll(0),
    'new keys': () => verifyAll(imports),
    'cold judgement': judge,
  }
  const medians = await inTurns(subjects)
  console.log(`${name}: ${signatures.length} signatures, ${imports} new keys`)
  for (const [subject, { wallMs, cpuMs }] of medians)
    console.log(`  ${subject.padEnd(15)} ${wallMs.toFixed(3)} wall, ${cpuMs.toFixed(3)} CPU`)
  const wallOf = (subject: keyof typeof subjects) => medians.get(subject)?.wallMs ?? Number.NaN
  const [known, fresh] = [wallOf('known keys'), wallOf('new keys')]
  const cold = wallOf('cold judgement')
  console.log(`  cold is ${(cold / known).toFixed(2)} × and ${(cold / fresh).toFixed(2)} ×`)
}

type Median = { readonly wallMs: number; readonly cpuMs: number }

/** Runs the subjects one after the other in each round. */
async function inTurns(
  subjects: Readonly<Record<string, () => Promise<void>>>,
): Promise<ReadonlyMap<string, Median>> {
  const times = new Map<string, Median[]>(Object.keys(subjects).map((name) => [name, []]))
  for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++)
    for (const [name, run] of Object.entries(subjects)) {
      const cpu = process.cpuUsage()
      const start = performance.now()
      await run()
      const wallMs = performance.now() - start
      const { user, system } = process.cpuUsage(cpu)
      if (round >= WARM_UP_ROUNDS) times.get(name)?.push({ wallMs, cpuMs: (user + system) / 1000 })
    }
  return new Map(
    [...times].map(([name, list]) => [
      name,
      {
        wallMs: medianOf(list.map(({ wallMs }) => wallMs)),
        cpuMs: medianOf(list.map(({ cpuMs }) => cpuMs)),
      },
    ]),
  )
}

function medianOf(list: readonly number[]): number {
  return list.toSorted((one, other) => one - other)[list.length >> 1] ?? Number.NaN
}

function ecdsa(namedCurve: string, hash: string): Signature {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve })
  return signatureOf(publicKey, {
    signature: sign(hash, SIGNED, { key: privateKey, dsaEncoding: 'ieee-p1363' }),
    key: { name: 'ECDSA', namedCurve },
    algorithm: { name: 'ECDSA', hash },
  })
}

function rsa(): Signature {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 4096 })
  const saltLength = 48
  return signatureOf(publicKey, {
    signature: sign('SHA-384', SIGNED, {
      key: privateKey,
      padding: constants.RSA_PKCS1_PSS_PADDING,
      saltLength,
    }),
    key: { name: 'RSA-PSS', hash: 'SHA-384' },
    algorithm: { name: 'RSA-PSS', saltLength },
  })
}

function signatureOf(
  publicKey: KeyObject,
  {
    signature,
    key,
    algorithm,
  }: {
    readonly signature: Uint8Array<ArrayBuffer>
    readonly key: ImportAlgorithm
    readonly algorithm: Algorithm
  },
): Signature {
  const spki = new Uint8Array(publicKey.export({ type: 'spki', format: 'der' }))
  return {
    importKey: () => subtle.importKey('spki', spki, key, false, ['verify']),
    verify: (imported) => subtle.verify(algorithm, imported, signature, SIGNED),
  }
}
