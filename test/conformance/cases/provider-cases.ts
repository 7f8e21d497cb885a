import type { JsonObject } from '#attestation/json/value.ts'
import {
  buildAttested,
  buildProvider,
  withProvider,
} from '../../attestation/evidence/build-attested.ts'
import { buildEvidence } from '../../attestation/evidence/build-evidence.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import type { BuiltKind } from '../../support/provider-builder/evidence-builder.ts'
import {
  consistent,
  type Draft,
  type DraftDemands,
  EXPECTED,
  invalid,
  OFFLINE,
  textOf,
  verified,
} from './draft.ts'

const { bundle, providerPolicy } = buildAttested('tinfoil v3 TDX', {}, { neighbours: [2, 3] })
const policy = textOf(Buffer.from(providerPolicy).toString())
const DEMANDED: DraftDemands = { ...EXPECTED, provider_policy: policy }
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

/** Evidence that only this member of its policy refuses. */
function ofPolicy(name: string, kind: BuiltKind, changed: JsonObject): Draft {
  const built = buildAttested(kind, { policy: changed }, { neighbours: [2, 3] })
  const demands = {
    ...EXPECTED,
    provider_policy: textOf(Buffer.from(built.providerPolicy).toString()),
  }
  const about = `evidence that passes a policy but for its ${Object.keys(changed).join()}`
  return draft(name, built.bundle, [about, invalid([ATTESTED], KEY, OFFLINE), demands])
}

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
  draft('no-evidence', buildEvidence({ neighbours: [2, 3] }).bundle, [
    'a policy for the provider, and a bundle without evidence',
    consistent(KEY, ATTESTED, OFFLINE),
  ]),
  draft('other-provider', swapped('dstack'), [
    'evidence of another kind of provider',
    invalid([ATTESTED], KEY, OFFLINE),
  ]),
  draft(
    'older',
    swapped('tinfoil v3 TDX', { evidence: { fetchedAtMs: MADE_AT.getTime() - 2 * DAY_MS } }),
    [
      'evidence that is older than the policy accepts at the time of the receipt',
      invalid([ATTESTED], OFFLINE),
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
  ofPolicy('policy-origin', 'tinfoil v3 TDX', { origins: ['https://another.example'] }),
  ofPolicy('policy-kind', 'dstack', { kind: 'aci' }),
]
