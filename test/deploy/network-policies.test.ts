import { readdirSync, readFileSync } from 'node:fs'
import { BlockList, isIPv6 } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'

const folder = join(import.meta.dirname, '../../deploy/kubernetes/base')
// What a manifest says is looked at as it comes.
type Manifest = ReturnType<typeof JSON.parse>

const manifests: readonly Manifest[] = readdirSync(folder)
  .filter((name) => name.endsWith('.yaml'))
  .map((name) => parse(readFileSync(join(folder, name), 'utf8')))
const policies = manifests.filter(({ kind }) => kind === 'NetworkPolicy')
const pods: readonly Manifest[] = manifests
  .filter(({ kind }) => ['Deployment', 'Job'].includes(kind))
  .map(({ spec }) => spec.template)

/** Whom traffic comes from or goes to: a pod in a namespace, or an address outside. */
type Peer =
  | { readonly address: string }
  | { readonly namespace: string; readonly pod: Readonly<Record<string, string>> }

const GATEWAY = { namespace: 'affidavit', pod: { 'app.kubernetes.io/name': 'affidavit-gateway' } }
const NATS = { namespace: 'affidavit', pod: { 'app.kubernetes.io/name': 'affidavit-nats' } }
const JOB = { namespace: 'affidavit', pod: { 'app.kubernetes.io/name': 'affidavit-migrations' } }
const STRANGER = { namespace: 'default', pod: { app: 'stranger' } }
const NEIGHBOUR = { namespace: 'affidavit', pod: { app: 'stranger' } }
const COLLECTOR = { namespace: 'monitoring', pod: { app: 'prometheus' } }
const INGRESS = { namespace: 'ingress', pod: { app: 'ingress' } }
const DNS = { namespace: 'kube-system', pod: { 'k8s-app': 'kube-dns' } }

const NAMESPACE_LABELS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  ingress: { 'affidavit/ingress': 'true' },
}
const labelsOf = (name: string) => ({
  'kubernetes.io/metadata.name': name,
  ...NAMESPACE_LABELS[name],
})

const isSelected = (
  { matchLabels = {} }: { readonly matchLabels?: Readonly<Record<string, string>> },
  labels: Readonly<Record<string, string>>,
) => Object.entries(matchLabels).every(([name, value]) => labels[name] === value)

/** As the reference of NetworkPolicy has it; without namespaceSelector: the policy's namespace. */
function isPeer(rule: Manifest, peer: Peer): boolean {
  if ('address' in peer) return rule.ipBlock !== undefined && isWithin(rule.ipBlock, peer.address)
  if (rule.ipBlock !== undefined) return false
  const isThere =
    rule.namespaceSelector === undefined
      ? peer.namespace === 'affidavit'
      : isSelected(rule.namespaceSelector, labelsOf(peer.namespace))
  return isThere && isSelected(rule.podSelector ?? {}, peer.pod)
}

function isWithin({ cidr, except = [] }: Manifest, address: string): boolean {
  const isIn = (block: string) => {
    const [network = '', length] = block.split('/')
    // An IPv4 address is in no IPv6 block, also not as one that is mapped.
    if (isIPv6(network) !== isIPv6(address)) return false
    const list = new BlockList()
    list.addSubnet(network, Number(length), isIPv6(network) ? 'ipv6' : 'ipv4')
    return list.check(address, isIPv6(address) ? 'ipv6' : 'ipv4')
  }
  return isIn(cidr) && !except.some(isIn)
}

function isAllowed(
  { pod }: { readonly pod: Readonly<Record<string, string>> },
  direction: 'ingress' | 'egress',
  { peer, port }: { readonly peer: Peer; readonly port: number | string },
): boolean {
  const mine = policies.filter(({ spec }) => isSelected(spec.podSelector, pod))
  return mine.some(({ spec }) =>
    (spec[direction] ?? []).some(
      (rule: Manifest) =>
        (rule[direction === 'ingress' ? 'from' : 'to'] ?? [{}]).some((one: Manifest) =>
          isPeer(one, peer),
        ) && (rule.ports ?? [{ port }]).some((one: Manifest) => one.port === port),
    ),
  )
}

describe('the network policies', () => {
  it('the network policies select every pod in both directions', () => {
    expect(pods).toHaveLength(3)
    for (const { metadata } of pods) {
      const mine = policies.filter(({ spec }) => isSelected(spec.podSelector, metadata.labels))
      expect(mine.map(({ spec }) => spec.policyTypes)).toEqual([['Ingress', 'Egress']])
    }
  })

  it('only the namespace of the collector reaches the metrics', () => {
    const asked = (peer: Peer) => isAllowed(GATEWAY, 'ingress', { peer, port: 'metrics' })
    expect(asked(COLLECTOR)).toBe(true)
    for (const peer of [STRANGER, NEIGHBOUR, INGRESS, NATS, { address: '203.0.113.7' }])
      expect(asked(peer), JSON.stringify(peer)).toBe(false)
  })

  it('only the namespace of the ingress reaches the API', () => {
    const asked = (peer: Peer) => isAllowed(GATEWAY, 'ingress', { peer, port: 'http' })
    expect(asked(INGRESS)).toBe(true)
    for (const peer of [STRANGER, NEIGHBOUR, COLLECTOR, { address: '203.0.113.7' }])
      expect(asked(peer), JSON.stringify(peer)).toBe(false)
  })

  it('only gateways reach NATS, and NATS reaches nothing', () => {
    const asked = (peer: Peer) => isAllowed(NATS, 'ingress', { peer, port: 'nats' })
    expect(asked(GATEWAY)).toBe(true)
    for (const peer of [STRANGER, NEIGHBOUR, JOB, INGRESS, { address: '203.0.113.7' }])
      expect(asked(peer), JSON.stringify(peer)).toBe(false)
    for (const peer of [DNS, GATEWAY, { address: '203.0.113.7' }, { address: '10.0.0.1' }])
      for (const port of [53, 443, 4222, 5432])
        expect(isAllowed(NATS, 'egress', { peer, port })).toBe(false)
  })

  it.each([
    ['IPv4', '169.254.169.254'],
    ['IPv6', 'fd00:ec2::254'],
    ['containers', '169.254.170.2'],
    ['a link-local address', 'fe80::1'],
    ['this machine', '127.0.0.1'],
  ])('let no pod reach the metadata of its instance, at any port: %s', (_, address) => {
    for (const one of [GATEWAY, NATS, JOB])
      for (const port of [53, 80, 443, 4222, 5432])
        expect(isAllowed(one, 'egress', { peer: { address }, port })).toBe(false)
  })

  it('a gateway reaches DNS, NATS, the database and public HTTPS addresses alone', () => {
    const goes = (peer: Peer, port: number) => isAllowed(GATEWAY, 'egress', { peer, port })
    expect(goes(DNS, 53)).toBe(true)
    expect(goes(NATS, 4222)).toBe(true)
    expect(goes({ address: '10.1.2.3' }, 5432)).toBe(true)
    for (const address of ['203.0.113.7', '2001:db8::7']) expect(goes({ address }, 443)).toBe(true)
    for (const address of ['10.1.2.3', '172.16.0.1', '192.168.1.1', '100.64.0.1', 'fd12::1'])
      expect(goes({ address }, 443), address).toBe(false)
    for (const port of [22, 80, 3000, 6379, 6443])
      expect(goes({ address: '203.0.113.7' }, port)).toBe(false)
  })
})
