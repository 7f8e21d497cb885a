import { createHash } from 'node:crypto'
import { expect, it } from 'vitest'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { parseGpuEvidence } from '#attestation/providers/nvidia/evidence-file.ts'
import {
  NVIDIA_ROOT_SHA256,
  verifyGpuEvidence,
} from '#attestation/providers/nvidia/verify-gpu-evidence.ts'
import { verifyNrasAnswer } from '#attestation/providers/nvidia/verify-nras-answer.ts'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import { readProviderPem, readProviderText } from '../../../support/hardware-fixtures.ts'
import { buildGpu } from '../../../support/provider-builder/gpu-builder.ts'
import { PROVIDER_FIXTURES, readProviderFixture } from '../../../support/provider-fixtures.ts'

const title = (text: string) => PROVIDER_FIXTURES.title(text)
const real = it.runIf(PROVIDER_FIXTURES.isMet)
const AT = new Date('2026-02-01')
const NO_KEYS = new Uint8Array(Buffer.from('{"keys":[]}'))

/** The only evidence in a file, with its nonce as the file states it. */
function readEvidence(file: string) {
  const [evidence] = parseGpuEvidence(readProviderFixture(`nvidia/${file}`))
  const [{ nonce }]: [{ readonly nonce: string }] = JSON.parse(readProviderText(`nvidia/${file}`))
  if (evidence === undefined) throw new Error('expected evidence')
  return { evidence, nonce: decodeHex(nonce) }
}

function readBlackwell() {
  return {
    evidence: decodeHex(readProviderText('nvidia/blackwellAttestationReport.txt').trim()),
    certificates: readProviderText('nvidia/blackwellCertChain.txt'),
  }
}

real(title("a Hopper's evidence is accepted with its nonce and its driver"), async () => {
  const { evidence, nonce } = readEvidence('hopper_evidence.json')
  expect(evidence.arch).toBe('HOPPER')
  expect(encodeHex(nonce)).toMatch(/^e97b23a1718095a0.*c11576$/)
  const { facts, checks } = await verifyGpuEvidence(evidence, { nonce }, AT)
  requireChecks(checks)
  expect(facts).toMatchObject({ driver: '590.12', device: 'GH100 A01 GSP FMC LF' })
  expect(facts?.measurements.size).toBe(64)
  const open = checks.filter(({ outcome }) => outcome === 'not checked')
  expect(open.map(({ name }) => name)).toEqual(['reference values', 'device revocation'])
})

real(title('evidence of a device on hold is accepted offline, its revocation open'), async () => {
  const { evidence, nonce } = readEvidence('hopper_evidence_cert_hold.json')
  const { checks } = await verifyGpuEvidence(evidence, { nonce }, AT)
  requireChecks(checks)
  expect(checks.find(({ name }) => name === 'device revocation')?.outcome).toBe('not checked')
})

real(title("a switch's evidence is accepted without firmware id"), async () => {
  const { evidence, nonce } = readEvidence('switch_evidence_ls10.json')
  const { facts, checks } = await verifyGpuEvidence(evidence, { nonce }, AT)
  requireChecks(checks)
  expect(facts).toMatchObject({ device: 'LS_10 A01 FSP FMC LF', driver: null, firmwareId: null })
})

real(title("a Blackwell's evidence is accepted with its deeper firmware id"), async () => {
  const evidence = readBlackwell()
  const nonce = evidence.evidence.slice(4, 36)
  const { facts, checks } = await verifyGpuEvidence(evidence, { nonce }, AT)
  requireChecks(checks)
  expect(facts).toMatchObject({ device: 'GB100 A01 GSP FMC LF', driver: '575.32' })
})

real(title("evidence with another device's certificates has a bad signature"), async () => {
  const { evidence, nonce } = readEvidence('hopper_evidence.json')
  const certificates = readProviderText('nvidia/hopperCertChain.txt')
  const { facts, checks } = await verifyGpuEvidence({ ...evidence, certificates }, { nonce }, AT)
  expect(checks.flatMap(({ code }) => code ?? [])).toEqual(['signature_invalid'])
  expect(facts).toBeNull()
})

real(title("NVIDIA's published root is the pinned root"), () => {
  const [root = new Uint8Array()] = readProviderPem('nvidia/verifier_device_root.pem')
  const fingerprint = createHash('sha256').update(root).digest('hex')
  expect(encodeHex(NVIDIA_ROOT_SHA256)).toBe(fingerprint)
})

real(title("the roots of reference values are no root of a device's chain"), async () => {
  const { evidence, nonce } = readEvidence('hopper_evidence.json')
  for (const file of ['nvidia/rim_root.crt', 'nvidia/verifier_RIM_root.pem']) {
    const [root = new Uint8Array()] = readProviderPem(file)
    const roots = [new Uint8Array(createHash('sha256').update(root).digest())]
    const { checks } = await verifyGpuEvidence(evidence, { nonce, roots }, AT)
    expect(checks.flatMap(({ code }) => code ?? [])).toEqual(['root_untrusted'])
  }
})

const nonce = decodeHex('931d8dd0add203ac3d8b4fbde75e115278eefcdceac5b87671a748f32364dfcb')

real(title('a real answer is refused without the key set of its time'), async () => {
  const answer = readProviderFixture('nvidia/hopperClaimsv3_detached_eat.json')
  const at = new Date('2025-06-11T00:40:00Z')
  const { devices, checks } = await verifyNrasAnswer({ answer, keySet: NO_KEYS }, { nonce }, at)
  expect(checks.flatMap(({ code }) => code ?? [])).toEqual(['token_key_unknown'])
  expect(devices).toBeNull()
})

real(title("a real answer's overall token has the digest of its device's token"), () => {
  const [[, overall], devices]: [[string, string], Readonly<Record<string, string>>] = JSON.parse(
    readProviderText('nvidia/hopperClaimsv3_detached_eat.json'),
  )
  const claims = JSON.parse(Buffer.from(overall.split('.')[1] ?? '', 'base64url').toString())
  const digest = createHash('sha256')
    .update(devices['GPU-0'] ?? '')
    .digest('hex')
  expect(claims.submods['GPU-0']).toEqual(['DIGEST', ['SHA-256', digest]])
})

real(title("tokens of NVIDIA's local verifier, alg none, are refused"), async () => {
  const { detached_eat }: { readonly detached_eat: unknown } = JSON.parse(
    readProviderText('nvidia/dstack-gpu_attestation_h100.json'),
  )
  const answer = new Uint8Array(Buffer.from(JSON.stringify(detached_eat)))
  const policy = { nonce: new Uint8Array(32).fill(0x11) }
  const { checks } = await verifyNrasAnswer({ answer, keySet: NO_KEYS }, policy, AT)
  expect(checks.flatMap(({ code }) => code ?? [])).toEqual(['token_algorithm'])
})

const { evidence } = buildGpu()
const item = {
  arch: 'HOPPER',
  certificate: Buffer.from(evidence.certificates).toString('base64'),
  evidence: Buffer.from(evidence.evidence).toString('base64'),
  nonce: '6e'.repeat(32),
}
const bytesOf = (json: unknown) => new Uint8Array(Buffer.from(JSON.stringify(json)))

it('an array of evidence is read, with each architecture', () => {
  const read = parseGpuEvidence(bytesOf([item, item]))
  expect(read).toEqual([
    { ...evidence, arch: 'HOPPER' },
    { ...evidence, arch: 'HOPPER' },
  ])
})

it('evidence with the version that newer tools add is read', () => {
  const read = parseGpuEvidence(bytesOf([{ ...item, version: '1.0' }]))
  expect(read).toEqual([{ ...evidence, arch: 'HOPPER' }])
})

it.each([
  ['an empty array', []],
  ['an object', item],
  ['25 devices', Array.from({ length: 25 }, () => item)],
  ['another member', [{ ...item, more: 1 }]],
  ['base64 of another form', [{ ...item, certificate: '*' }]],
  ['a nonce of 31 bytes', [{ ...item, nonce: '6e'.repeat(31) }]],
])('the JSON is refused as malformed if it holds %s', (_, json) => {
  expect(() => parseGpuEvidence(bytesOf(json))).toThrow(
    expect.objectContaining({ name: 'ProviderEvidenceError', code: 'answer_malformed' }),
  )
})

it('a nonce beside the evidence that is not its nonce is refused', () => {
  const parse = () => parseGpuEvidence(bytesOf([{ ...item, nonce: '00'.repeat(32) }]))
  expect(parse).toThrow(ProviderEvidenceError)
  expect(parse).toThrow(expect.objectContaining({ code: 'nonce_mismatch' }))
})
