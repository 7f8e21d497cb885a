import { createHash } from 'node:crypto'
import { isIP } from 'node:net'
import { encodeBase64, encodeHex } from '#attestation/bytes.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import {
  buildCertificate,
  certificateParts,
  developmentName,
  extension,
  generateKey,
  KEY_USAGE_BITS,
  keyUsage,
  leafConstraints,
  publicKeyInfo,
  type SigningKey,
  toPem,
} from '../x509/certificate-builder.ts'
import { encodeDer, sequence } from '../x509/der-encoder.ts'
import { collateralOf, EVALUATION_NUMBER, intelAnswersOf } from './intel-collateral.ts'
import { createIntelPki } from './intel-pki.ts'
import type { SealedModels } from './sealed-models.ts'
import {
  builderExtensions,
  builderOf,
  buildLogEntry,
  buildStatement,
  bundleOf,
  codeCertificateParts,
  entryBodyOf,
  STATEMENT_PAYLOAD,
  signStatement,
  timestampExtension,
} from './sigstore-bundle.ts'
import { BODY_OFFSETS, bodyOf, buildQuote, qeReportOf, quoteHeader, rawPoint } from './tdx-quote.ts'
import { lifeFrom, type TeeKeys, TLS_AUTHORITY } from './tee-keys.ts'
import {
  buildTinfoilAnswer,
  cmdlineOf,
  collateralItem,
  predicateOfBuild,
  TINFOIL_PREDICATE,
  tlsKeyItem,
} from './tinfoil-answer.ts'

/** Answers as a TEE would. It protects nothing: its keys are in a file. */
export type SimulatedTee = {
  /** Version 3 of Tinfoil's document for a nonce of 32 bytes, JSON. */
  attest(nonce: Uint8Array): string
  /** PEM. */
  readonly tls: { readonly key: string; readonly cert: string }
  /**
   * Returns a policy that accepts this machine at the origins. It trusts only this machine's roots.
   */
  policyFor(origins: readonly string[]): JsonObject
}

const DAY_MS = 24 * 3_600_000
const REPOSITORY = 'affidavit-development/demo'
const REF = 'refs/tags/development'
/** Made-up values: no firmware or kernel is measured here. */
const MEASURED = {
  mrtd: measure('simulated firmware'),
  rtmr0: measure('simulated hardware'),
  rtmr1: measure('simulated kernel'),
}
/** SEV-SNP measurement in the signed build. No machine of this demonstration has it. */
const NO_SNP = new Uint8Array(48)

/** `host` is in the machine's TLS certificate. */
export function createSimulatedTee(
  keys: TeeKeys,
  {
    sealed,
    host,
    now,
  }: {
    readonly sealed: SealedModels
    readonly host: string
    /** Unix milliseconds. */
    readonly now: () => number
  },
): SimulatedTee {
  const intel = createIntelPki(lifeFrom(now()), keys.intelRoot)
  const cmdline = cmdlineOf(sealed.config)
  const rtmr2 = measure(cmdline)
  const quoting = { intel, key: generateKey('P-256'), registers: { ...MEASURED, rtmr2 } }
  const measurements = { snp: NO_SNP, rtmr1: MEASURED.rtmr1, rtmr2 }
  const predicate = predicateOfBuild({ config: sealed.config, cmdline, measurements })
  const build = collateralItem('sigstore-code', {
    sigstore_bundle: signBuild(keys, { predicate, loggedAt: new Date(now()) }),
  })
  const tlsKey = createHash('sha256').update(publicKeyInfo(keys.tls)).digest('hex')
  return {
    attest: (nonce) => {
      const document = buildTinfoilAnswer({
        nonce,
        format: 'tdx-quote',
        bound: { items: [tlsKeyItem(tlsKey)], devices: [] },
        collateral: [collateralItem('intel-pcs', { responses: answersAt(now()) }), build],
        attest: (reportData) => signQuote(reportData, quoting),
      })
      return JSON.stringify(document)
    },
    tls: {
      key: String(keys.tls.privateKey.export({ type: 'pkcs8', format: 'pem' })),
      cert: toPem(issueTls(keys, { host, nowMs: now() })),
    },
    policyFor: (origins) => ({
      version: 1,
      kind: 'tinfoil',
      origins,
      roots: {
        intel: [createHash('sha256').update(keys.intelRoot.certificate).digest('hex')],
        sigstore: {
          authorities: [encodeBase64(keys.codeAuthority.certificate)],
          logs: [encodeBase64(publicKeyInfo(keys.codeLog))],
          certificate_logs: [encodeBase64(publicKeyInfo(keys.codeLog))],
        },
      },
      release: { repository: REPOSITORY, refs: [REF] },
      tdx: {
        evaluation_number_min: EVALUATION_NUMBER,
        platforms: [{ mrtd: encodeHex(MEASURED.mrtd), rtmr0: encodeHex(MEASURED.rtmr0) }],
      },
      weights: [sealed.rootHash],
    }),
  }

  /**
   * The collateral is made again for each answer, so that it stays valid while the process runs.
   */
  function answersAt(nowMs: number): readonly Json[] {
    const period = { from: new Date(nowMs - DAY_MS), to: new Date(nowMs + 30 * DAY_MS) }
    return intelAnswersOf(collateralOf(intel, period)).map(({ url, headers, body }) => ({
      url,
      headers,
      body_base64: encodeBase64(Buffer.from(body)),
    }))
  }
}

/** No quoting enclave protects the key. */
function signQuote(
  reportData: Uint8Array,
  {
    intel,
    key,
    registers: { mrtd, rtmr0, rtmr1, rtmr2 },
  }: {
    readonly intel: ReturnType<typeof createIntelPki>
    readonly key: SigningKey
    readonly registers: Readonly<Record<'mrtd' | 'rtmr0' | 'rtmr1' | 'rtmr2', Uint8Array>>
  },
): Uint8Array {
  const body = bodyOf('1.0')
  body.set(mrtd, BODY_OFFSETS.mrTd)
  body.set(Buffer.concat([rtmr0, rtmr1, rtmr2]), BODY_OFFSETS.rtmr0)
  body.set(reportData, BODY_OFFSETS.reportData)
  const point = rawPoint(key)
  return buildQuote({
    signed: Buffer.concat([quoteHeader(4), body]),
    point,
    quoteSigner: key,
    qeReport: qeReportOf(point),
    qeSigner: intel.key('pck'),
    pem: toPem(
      intel.certificate('pck'),
      intel.certificate('platformCa'),
      intel.certificate('root'),
    ),
  })
}

/** The development authority and log sign the build. No workflow made it. */
function signBuild(
  { codeAuthority, codeLog }: TeeKeys,
  { predicate, loggedAt }: { readonly predicate: JsonObject; readonly loggedAt: Date },
): JsonObject {
  const key = generateKey('P-256')
  const parts = codeCertificateParts({
    authority: codeAuthority.key,
    key,
    loggedAt,
    builder: builderExtensions(builderOf(REPOSITORY, REF)),
  })
  const timestamp = timestampExtension(buildCertificate(parts), {
    authority: codeAuthority.key,
    log: codeLog,
    loggedAt,
  })
  const certificate = buildCertificate({ ...parts, extensions: [...parts.extensions, timestamp] })
  const digest = createHash('sha256').update(JSON.stringify(predicate)).digest('hex')
  const signed = signStatement(
    buildStatement(digest, { predicate, predicateType: TINFOIL_PREDICATE }),
    { key, certificate, payloadType: STATEMENT_PAYLOAD },
  )
  const logKeys = { id: codeLog, promise: codeLog, checkpoint: codeLog }
  return bundleOf(signed, buildLogEntry(entryBodyOf(signed), { keys: logKeys, loggedAt }))
}

function issueTls(
  { tls, tlsAuthority }: TeeKeys,
  { host, nowMs }: { readonly host: string; readonly nowMs: number },
): Uint8Array {
  const parts = certificateParts({
    serial: nowMs,
    issuer: { name: TLS_AUTHORITY, key: tlsAuthority.key },
    life: lifeFrom(nowMs),
    subject: developmentName('Affidavit demonstration provider'),
    key: tls,
    extensions: [
      leafConstraints(),
      keyUsage(KEY_USAGE_BITS.digitalSignature),
      extension('2.5.29.17', { critical: false, value: sequence(hostName(host)) }),
    ],
  })
  return buildCertificate(parts)
}

/** GeneralName: an IPv4 address, or a DNS name (RFC 5280, 4.2.1.6). */
function hostName(host: string): Uint8Array {
  return isIP(host) === 4
    ? encodeDer(0x87, Uint8Array.from(host.split('.').map(Number)))
    : encodeDer(0x82, Buffer.from(host))
}

/** Takes the place of a measurement by a TDX module. */
function measure(text: string): Uint8Array {
  return new Uint8Array(createHash('sha384').update(text).digest())
}
