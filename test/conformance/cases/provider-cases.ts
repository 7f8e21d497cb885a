import {
  buildAttested,
  buildProvider,
  withProvider,
} from '../../attestation/evidence/build-attested.ts'
import { buildEvidence } from '../../attestation/evidence/build-evidence.ts'
import { generateKey } from '../../support/nitro-builder/certificate-builder.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import {
  BLOCK_HASH,
  type BuiltKind,
  type EvidenceChanges,
  twinGpuItem,
} from '../../support/provider-builder/evidence-builder.ts'
import {
  type Draft,
  type DraftDemands,
  EXPECTED,
  incomplete,
  invalid,
  notAccepted,
  OFFLINE,
  textOf,
  UNREADABLE,
  verified,
} from './draft.ts'

const { bundle, providerPolicy, chain } = buildAttested(
  'tinfoil v3 TDX',
  {},
  { neighbours: [2, 3] },
)
const policyOf = (...policies: readonly Uint8Array[]) =>
  textOf(`{"providers":[${policies.map((one) => Buffer.from(one)).join()}]}`)
const policy = policyOf(providerPolicy)
const DEMANDED: DraftDemands = { ...EXPECTED, policy }
const KEY = "provider's key"
const ATTESTED = 'provider attested'
const DAY_MS = 86_400_000

const swapped = (...given: Parameters<typeof buildProvider>) =>
  withProvider(bundle, buildProvider(...given).bytes)

function draft(
  name: string,
  source: object,
  [about, expect, demands = DEMANDED]: readonly [string, Draft['expect'], DraftDemands?],
): Draft {
  const json = JSON.parse(JSON.stringify(source))
  return {
    name: `bundle/provider-evidence/${name}`,
    about,
    kind: 'bundle',
    source: { json },
    demands,
    expect,
  }
}

/** Evidence that its own policy refuses. */
function ofChange(
  name: string,
  kind: BuiltKind,
  about: string,
  {
    refused = invalid,
    notChecked = [],
    ...changes
  }: EvidenceChanges & { refused?: typeof invalid; notChecked?: readonly string[] },
): Draft {
  const built = buildAttested(kind, changes, { neighbours: [2, 3] })
  const demands = {
    ...EXPECTED,
    policy: policyOf(built.providerPolicy),
  }
  return draft(name, built.bundle, [about, refused([ATTESTED], ...notChecked, OFFLINE), demands])
}

/** Evidence that only these members of its policy refuse. */
function ofPolicy(
  name: string,
  kind: BuiltKind,
  policy: NonNullable<EvidenceChanges['policy']>,
  changes: Omit<Parameters<typeof ofChange>[3], 'policy'> = {},
): Draft {
  const about = `evidence that passes a policy but for its ${Object.keys(policy).join()}`
  return ofChange(name, kind, about, { refused: notAccepted, ...changes, policy })
}

const BLOCK = { chainId: chain.chainId, number: 17, hash: BLOCK_HASH }
const atSeconds = MADE_AT.getTime() / 1000

/** The evidence with a block of the bundle's chain, and what this chain answers about that block. */
function ofBlock(
  name: string,
  [about, expect]: readonly [string, Draft['expect']],
  found: { readonly hash?: Uint8Array; readonly timestamp: number },
): Draft {
  const { hash = BLOCK_HASH, timestamp } = found
  const anchor = bundle.block?.number ?? 0
  const answers = {
    chain_id: chain.chainId,
    newest_block: chain.newestBlock,
    blocks: { [anchor]: String(chain.blockHash), 17: `0x${Buffer.from(hash).toString('hex')}` },
    times: { 17: timestamp },
  }
  const source = swapped('tinfoil v3 TDX', { evidence: { block: BLOCK } })
  return draft(name, source, [about, expect, { ...DEMANDED, chain: answers }])
}

const elsewhere = buildAttested('dstack', { policy: { origins: ['https://other.example'] } })
const OWN = Buffer.from(providerPolicy).toString()

/** Policies that are refused before the evidence is read. */
const MALFORMED: readonly (readonly [name: string, about: string, text: string])[] = [
  ['empty', 'a policy with neither enclaves nor providers', '{}'],
  ['no-providers', 'a policy with an empty list of providers', '{"providers":[]}'],
  [
    'unknown-member',
    'a policy with a member that there is not',
    `{"providers":${OWN},"expect":{}}`,
  ],
  ['twice', 'a policy with a member twice', `{"providers":${OWN},"providers":${OWN}}`],
  ['bare', 'the policy of a provider that is not in providers', OWN],
  ['open-enclaves', 'a policy of enclaves without code', `{"providers":${OWN},"enclaves":{}}`],
]

const firmware = { mrtd: '11'.repeat(48), rtmr0: '22'.repeat(48) }
const kernel = { rtmr1: 'a1'.repeat(48), rtmr2: 'a2'.repeat(48), rtmr3: '00'.repeat(48) }
const floors = { Milan: { bootloader: 4, tee: 0, snp: 23, microcode: 213 } }
const release = { release: undefined, weights: undefined }

/** Bundles with evidence of their provider's machine, under development roots. */
export const providerCases: readonly Draft[] = [
  draft('accepted', bundle, [
    'evidence of the provider that passes its policy, and states the key of the receipt',
    verified(OFFLINE),
  ]),
  draft('no-policy', bundle, [
    'the same without a policy: under the makers’ roots it binds no key, and nothing is judged',
    verified(KEY, ATTESTED, OFFLINE),
    EXPECTED,
  ]),
  draft('second-policy', bundle, [
    'a policy of two providers: the second is that of the evidence',
    verified(OFFLINE),
    { ...EXPECTED, policy: policyOf(elsewhere.providerPolicy, providerPolicy) },
  ]),
  draft('unlisted', bundle, [
    'a policy of providers, of which none is that of the evidence',
    notAccepted([ATTESTED], KEY, OFFLINE),
    { ...EXPECTED, policy: policyOf(elsewhere.providerPolicy) },
  ]),
  ...MALFORMED.map(([name, about, text]) =>
    draft(`policy/${name}`, bundle, [about, UNREADABLE, { ...EXPECTED, policy: textOf(text) }]),
  ),
  draft('no-evidence', buildEvidence({ neighbours: [2, 3] }).bundle, [
    'a policy for the provider, and a bundle without evidence',
    incomplete(KEY, ATTESTED, OFFLINE),
  ]),
  draft('other-provider', swapped('dstack'), [
    'evidence of another kind of provider',
    notAccepted([ATTESTED], KEY, OFFLINE),
  ]),
  draft(
    'older',
    swapped('tinfoil v3 TDX', { evidence: { fetchedAtMs: MADE_AT.getTime() - 2 * DAY_MS } }),
    [
      'evidence that is older than the policy accepts at the time of the receipt',
      notAccepted([ATTESTED], OFFLINE),
    ],
  ),
  draft(
    'other-key',
    swapped('tinfoil v3 TDX', {
      bound: ({ items }: { readonly items: { data: string }[] }) => {
        const [tls] = items
        if (tls !== undefined) tls.data = 'ee'.repeat(32)
      },
    }),
    ['evidence of another TLS key than that of the receipt', invalid([KEY], OFFLINE)],
  ),
  ofChange(
    'one-gpu-twice',
    'tinfoil v3 SNP',
    'evidence of one GPU as that of two: the second certificate has the other valid signature',
    { bound: ({ devices }) => devices.push(twinGpuItem()) },
  ),
  draft(
    'other-origin',
    swapped('tinfoil v3 TDX', { evidence: { origin: 'https://other.example', responses: [] } }),
    ['evidence of another origin than that of the receipt', invalid([KEY, ATTESTED], OFFLINE)],
  ),
  draft(
    'other-origin-unjudged',
    swapped('tinfoil v3 TDX', { evidence: { origin: 'https://other.example', responses: [] } }),
    ['the same without a policy', invalid([KEY], ATTESTED, OFFLINE), EXPECTED],
  ),
  draft(
    'other-block',
    swapped('tinfoil v3 TDX', {
      evidence: { block: { chainId: 1, number: 17, hash: new Uint8Array(32).fill(9) } },
    }),
    ['evidence whose nonce is not made of the block that it names', invalid([ATTESTED], OFFLINE)],
  ),
  ofPolicy(
    'policy-origin',
    'tinfoil v3 TDX',
    { origins: ['https://another.example'] },
    { notChecked: [KEY] },
  ),
  ofPolicy('policy-kind', 'dstack', { kind: 'aci' }, { notChecked: [KEY] }),
  ofPolicy('policy-platforms', 'tinfoil v3 TDX', {
    ...release,
    measurements: { tdx: [kernel] },
    tdx: { evaluation_number_min: 18, platforms: [firmware] },
  }),
  ofPolicy('policy-fmspcs', 'dstack', {
    tdx: { evaluation_number_min: 18, fmspcs: ['00806f050000'] },
  }),
  ofPolicy('policy-evaluation-number', 'dstack', { tdx: { evaluation_number_min: 19 } }),
  ofChange(
    'evaluation-number-old',
    'aci',
    'collateral of an older number than one that is due by the age that the policy names',
    {
      refused: notAccepted,
      tdx: {
        evaluationNumbers: {
          tcbEvalNumbers: [
            { tcbEvaluationDataNumber: 19, tcbRecoveryEventDate: '2025-03-01T00:00:00Z' },
          ],
        },
      },
      policy: { tdx: { evaluation_number_min: 18, evaluation_number_days: 365 } },
    },
  ),
  ofChange(
    'certificate-without-timestamp',
    'tinfoil v3 TDX',
    'a signed build whose certificate no log of certificates promised to include',
    { build: { timestamps: null } },
  ),
  ofChange(
    'certificate-of-another-log',
    'tinfoil v3 TDX',
    'a signed build whose certificate has the timestamp of a log that is not trusted',
    { refused: notAccepted, build: { timestampLog: generateKey('P-256') } },
  ),
  ofPolicy('policy-chip', 'tinfoil v3 SNP', { snp: { floors, chip_ids: ['c2'.repeat(64)] } }),
  ofPolicy('policy-vmpl', 'tinfoil v3 SNP', { snp: { floors, vmpl: 1 } }),
  ofPolicy('policy-platform-info', 'tinfoil v3 SNP', {
    snp: { floors, platform_info: { alias_check_complete: true, smt: false } },
  }),
  ofPolicy(
    'policy-committed',
    'tinfoil v3 SNP',
    { snp: { floors, needs_committed: true } },
    { snp: (report) => void report.set([30], 0x1e8) },
  ),
  ofPolicy(
    'policy-block-not-looked-up',
    'dstack',
    { needs_block: true },
    { refused: () => incomplete(ATTESTED, OFFLINE) },
  ),
  ofBlock(
    'block-looked-up',
    ['evidence whose nonce is made of a recent block of the chain', verified()],
    { timestamp: atSeconds - 600 },
  ),
  ofBlock(
    'block-older',
    [
      'evidence whose block is older than the policy accepts, and whose collector states a later time',
      notAccepted([ATTESTED]),
    ],
    { timestamp: atSeconds - 20 * 86_400 },
  ),
  ofBlock(
    'block-not-on-chain',
    ['evidence of a block that the chain does not have', invalid([ATTESTED])],
    { hash: new Uint8Array(32).fill(9), timestamp: atSeconds - 600 },
  ),
]
