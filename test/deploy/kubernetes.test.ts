import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { cp, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { validate as deployment } from 'kubernetes-models/_schemas/IoK8sApiAppsV1Deployment'
import { validate as job } from 'kubernetes-models/_schemas/IoK8sApiBatchV1Job'
import { validate as configMap } from 'kubernetes-models/_schemas/IoK8sApiCoreV1ConfigMap'
import { validate as namespace } from 'kubernetes-models/_schemas/IoK8sApiCoreV1Namespace'
import { validate as secret } from 'kubernetes-models/_schemas/IoK8sApiCoreV1Secret'
import { validate as service } from 'kubernetes-models/_schemas/IoK8sApiCoreV1Service'
import { validate as serviceAccount } from 'kubernetes-models/_schemas/IoK8sApiCoreV1ServiceAccount'
import { validate as networkPolicy } from 'kubernetes-models/_schemas/IoK8sApiNetworkingV1NetworkPolicy'
import { validate as disruptionBudget } from 'kubernetes-models/_schemas/IoK8sApiPolicyV1PodDisruptionBudget'
import { beforeAll, describe, expect, it } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { createProgram } from '#src/cli/program.ts'
import { readGatewayConfig } from '#src/config.ts'
import { folderOfFile, folderOfTest } from '../support/folders.ts'
import { needProgram } from '../support/needs.ts'

const root = join(import.meta.dirname, '../..')
const folder = join(root, 'deploy/kubernetes')

// What a manifest says is looked at as it comes.
type Manifest = ReturnType<typeof JSON.parse>
type Validate = ((data: unknown) => boolean) & { readonly errors?: unknown }

/** The package exports a class that takes copies; the schema itself is beside it. */
const OPERATOR =
  'node_modules/@kubernetes-models/prometheus-operator/_schemas/ComGithubPrometheusOperatorPrometheusOperatorPkgApisMonitoringV1ServiceMonitor.js'
const { validate: serviceMonitor } = (await import(pathToFileURL(join(root, OPERATOR)).href)) as {
  readonly validate: Validate
}

/** Kubernetes' own schemas, and the Prometheus operator's. */
const SCHEMAS: Readonly<Record<string, Validate>> = {
  'apps/v1 Deployment': deployment,
  'batch/v1 Job': job,
  'policy/v1 PodDisruptionBudget': disruptionBudget,
  'networking.k8s.io/v1 NetworkPolicy': networkPolicy,
  'monitoring.coreos.com/v1 ServiceMonitor': serviceMonitor,
  'v1 ConfigMap': configMap,
  'v1 Namespace': namespace,
  'v1 Secret': secret,
  'v1 Service': service,
  'v1 ServiceAccount': serviceAccount,
}

/**
 * Gives what is wrong with a manifest by its schema. A member that the schema does not look at is
 * one that it does not have: the server would drop it, or refuse it.
 */
function faultsOf(manifest: Manifest): readonly string[] {
  const validate = SCHEMAS[`${manifest.apiVersion} ${manifest.kind}`]
  if (validate === undefined) return [`no schema of ${manifest.apiVersion} ${manifest.kind}`]
  const seen = new Set<string>()
  const watch = (value: Manifest, path: string): Manifest =>
    typeof value !== 'object' || value === null
      ? value
      : new Proxy(value, {
          get(target, name) {
            if (typeof name === 'symbol') return target[name]
            seen.add(`${path}/${name}`)
            return Object.hasOwn(target, name)
              ? watch(target[name], `${path}/${name}`)
              : target[name]
          },
        })
  if (!validate(watch(manifest, ''))) return [JSON.stringify(validate.errors)]
  return listPaths(manifest)
    .filter((path) => !seen.has(path))
    .map((path) => `unknown: ${path}`)
}

function listPaths(value: Manifest, path = ''): readonly string[] {
  if (typeof value !== 'object' || value === null) return []
  return Object.keys(value).flatMap((name) => [
    `${path}/${name}`,
    ...listPaths(value[name], `${path}/${name}`),
  ])
}

const read = (path: string): Manifest => parse(readFileSync(join(folder, path), 'utf8'))
const base: Manifest = read('base/kustomization.yaml')
const manifests: readonly Manifest[] = base.resources.map((name: string) => read(`base/${name}`))
const byKind = (kind: string): Manifest => manifests.find((one) => one.kind === kind)

describe('the manifests', () => {
  it('the page for operators names every file that the overlay reads', () => {
    const page = readFileSync(join(root, 'docs/operating/run-on-kubernetes.md'), 'utf8')
    const { configMapGenerator, secretGenerator } = read('overlays/example/kustomization.yaml')
    const generators: readonly Manifest[] = [...configMapGenerator, ...secretGenerator]
    const names = generators
      .flatMap(({ files = [], envs = [] }) => [...files, ...envs] as string[])
      .map((entry) => entry.replace(/^.*=/, '').replace(/\/.*$/, '/'))
    expect(names).toContain('nats-tls/')
    expect(names.filter((name) => !page.includes(`\`${name}\``))).toEqual([])
  })

  it.each([
    ...base.resources.map((name: string) => `base/${name}`),
    'overlays/example/namespace.yaml',
  ])('the manifest %s is valid', (path) => expect(faultsOf(read(path))).toEqual([]))

  it.each([
    ['another type', (it: Manifest) => (it.spec.replicas = 'two')],
    ['a misspelt member', (it: Manifest) => (it.spec.replica = 2)],
    [
      'a misspelt member, deep down',
      (it: Manifest) => (it.spec.template.spec.containers[0].readinessProb = {}),
    ],
    ['no selector', (it: Manifest) => delete it.spec.selector],
    ['another kind', (it: Manifest) => (it.kind = 'Deploiement')],
  ])('a manifest with %s is not valid', (_, damage) => {
    const damaged = structuredClone(byKind('Deployment'))
    damage(damaged)
    expect(faultsOf(damaged)).not.toEqual([])
  })

  it('the base lists every manifest, and every listed manifest is there', () => {
    const generated = base.configMapGenerator.flatMap(({ files }: Manifest) => files)
    const files = readdirSync(join(folder, 'base')).filter(
      (name) => name !== 'kustomization.yaml' && !generated.includes(name),
    )
    expect(base.resources.toSorted()).toEqual(files.toSorted())
    const overlay = read('overlays/example/kustomization.yaml')
    for (const name of overlay.resources)
      expect(existsSync(join(folder, 'overlays/example', name)), name).toBe(true)
  })

  it('the manifests name each other as they are named', () => {
    const { spec, metadata } = byKind('Deployment')
    const { labels } = spec.template.metadata
    const named = { 'app.kubernetes.io/name': metadata.name }
    expect(labels).toEqual(named)
    expect(spec.selector.matchLabels).toEqual(named)
    expect(byKind('Service').spec.selector).toEqual(named)
    expect(byKind('Service').metadata.labels).toEqual(named)
    expect(byKind('PodDisruptionBudget').spec.selector.matchLabels).toEqual(named)
    expect(byKind('ServiceMonitor').spec.selector.matchLabels).toEqual(named)
    expect(spec.template.spec.serviceAccountName).toBe(byKind('ServiceAccount').metadata.name)
    expect(byKind('Job').spec.template.spec.serviceAccountName).toBe(
      byKind('ServiceAccount').metadata.name,
    )
    const [container] = spec.template.spec.containers
    const ports = container.ports.map(({ name }: { name: string }) => name)
    const service = byKind('Service').spec.ports
    expect(service.map(({ targetPort }: Manifest) => targetPort)).toEqual(ports)
    const monitored = byKind('ServiceMonitor').spec.endpoints[0].port
    expect(service.map(({ name }: Manifest) => name)).toContain(monitored)
    for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'])
      expect(ports).toContain(container[probe].httpGet.port)
    const volumes = spec.template.spec.volumes.map(({ name }: Manifest) => name)
    expect(container.volumeMounts.map(({ name }: Manifest) => name)).toEqual(volumes)
  })
})

describe('the gateway on Kubernetes', () => {
  const { spec } = byKind('Deployment').spec.template
  const [container] = spec.containers
  const variables: Readonly<Record<string, string>> = Object.fromEntries(
    container.env.map(({ name, value }: Manifest) => [name, value]),
  )
  const settings = Object.fromEntries(
    readFileSync(join(folder, 'overlays/example/gateway.env'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => line.split(/=(.*)/, 2)),
  )

  it('the gateway takes the settings and secrets of its pod once the blanks are filled in', async () => {
    const example = readFileSync(join(folder, 'overlays/example/secrets.env.example'), 'utf8')
    const secrets = await mountSecrets({
      DATABASE_URL: 'postgres://u:p@db/a',
      RELAYER_PRIVATE_KEY: `0x${'22'.repeat(32)}`,
      NATS_URL: /^NATS_URL=(.*)$/m.exec(example)?.[1] ?? '',
    })
    const config = readGatewayConfig({
      ...settings,
      CHAIN_RPC_URL: 'https://rpc.example',
      CHAIN_ID: '84532',
      CONTRACT_ADDRESS: `0x${'11'.repeat(20)}`,
      RELEASE_KEY: 'd75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a',
      ...secrets,
    })
    expect(config).toMatchObject({ isProduction: true, isStaging: false, isHistoryOpen: false })
    expect(config.databaseUrl).toBe('postgres://u:p@db/a')
    expect(config.bus).toMatchObject({
      servers: ['tls://gateway:PASSWORD@affidavit-nats:4222'],
      caFile: '/etc/affidavit/nats/ca.crt',
    })
    const [http, metrics] = container.ports
    expect([config.port, config.metrics?.port]).toEqual([http.containerPort, metrics.containerPort])
    // docs/operating/stop-a-gateway.md.
    const seconds = (config.drainDelayMs + config.shutdownGraceMs) / 1000 + 20
    expect(spec.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(seconds)
    expect(config.drainDelayMs).toBeGreaterThanOrEqual(10_000)
  })

  it('the gateway refuses settings whose blanks are not filled in', async () => {
    const NATS_URL = 'tls://gateway:PASSWORD@affidavit-nats:4222'
    const variables = await mountSecrets({ DATABASE_URL: 'postgres://u:p@db/a', NATS_URL })
    expect(() => readGatewayConfig({ ...settings, ...variables })).toThrow(
      /RELAYER_PRIVATE_KEY_FILE/,
    )
    expect(() =>
      readGatewayConfig({ ...settings, ...variables, RELAYER_PRIVATE_KEY_FILE: '' }),
    ).toThrow(/CHAIN_RPC_URL/)
  })

  /** The secrets as files, where the variables then say that they are; readable by a group. */
  async function mountSecrets(of: Readonly<Record<string, string>>) {
    const mounted = container.volumeMounts.find(({ name }: Manifest) => name === 'secrets')
    const copy = folderOfTest()
    for (const [name, text] of Object.entries(of))
      await writeFile(join(copy, name), text, { mode: 0o440 })
    const moved = Object.entries(variables).map(([name, value]) => [
      name,
      value.replace(mounted.mountPath, copy),
    ])
    return Object.fromEntries(moved) as Readonly<Record<string, string>>
  }

  it('the pods have their secrets in files that their group may read, and in no environment', () => {
    const example = readFileSync(join(folder, 'overlays/example/secrets.env.example'), 'utf8')
    const names = example.match(/^[A-Z_]+(?==)/gm) ?? []
    for (const pod of [spec, byKind('Job').spec.template.spec]) {
      const [{ env, envFrom = [], volumeMounts }] = pod.containers
      const volume = pod.volumes.find(({ secret }: Manifest) => secret)
      const { mountPath } = volumeMounts.find(({ name }: Manifest) => name === volume.name)
      expect(volume.secret).toMatchObject({ secretName: 'affidavit-gateway', defaultMode: 0o440 })
      expect(pod.securityContext.fsGroup).toBe(pod.securityContext.runAsGroup)
      const files = env.filter(({ value = '' }: Manifest) => value.startsWith(mountPath))
      expect(files.length).toBeGreaterThan(0)
      for (const { name, value } of files) {
        expect(names).toContain(name.replace(/_FILE$/, ''))
        expect(value).toBe(`${mountPath}/${name.replace(/_FILE$/, '')}`)
      }
      for (const one of [...env, ...envFrom])
        expect(JSON.stringify(one)).not.toMatch(/secretKeyRef|secretRef/)
    }
  })

  it('the pods of the gateway and its migration have no rights and a user of their own', () => {
    for (const pod of [spec, byKind('Job').spec.template.spec]) {
      expect(pod).toMatchObject({
        automountServiceAccountToken: false,
        securityContext: { runAsNonRoot: true, runAsUser: 10_002, runAsGroup: 10_002 },
      })
      expect(pod.containers[0].securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      })
      expect(pod.containers[0].resources.limits.memory).toMatch(/^\d+[MG]i$/)
    }
  })

  it('the probes ask /healthz whether the gateway is alive and /readyz whether it is ready', () => {
    expect(container.livenessProbe.httpGet.path).toBe('/healthz')
    expect(container.startupProbe.httpGet.path).toBe('/healthz')
    expect(container.readinessProbe.httpGet.path).toBe('/readyz')
  })

  it('the migration job calls a command that exists', () => {
    const [migrate] = byKind('Job').spec.template.spec.containers
    const [node, file, command] = migrate.command
    expect([node, file]).toEqual(['node', 'src/cli/main.ts'])
    expect(createProgram().commands.map((one) => one.name())).toContain(command)
  })
})

/** What kustomize makes beside the manifests of the base. */
const GENERATED = [
  'Namespace affidavit',
  'ConfigMap affidavit-gateway',
  'ConfigMap affidavit-releases',
  'ConfigMap affidavit-nats',
  'ConfigMap affidavit-nats-ca',
  'Secret affidavit-gateway',
  'Secret affidavit-nats-login',
  'Secret affidavit-nats-tls',
]

const KUBECTL = needProgram('kubectl')

describe.runIf(KUBECTL.isMet)(KUBECTL.title('what kustomize makes of the example'), () => {
  const copy = folderOfFile()
  let built: readonly Manifest[]
  beforeAll(async () => {
    await cp(folder, copy, { recursive: true })
    const overlay = join(copy, 'overlays/example')
    await cp(join(overlay, 'secrets.env.example'), join(overlay, 'secrets.env'))
    await cp(join(overlay, 'nats-login.conf.example'), join(overlay, 'nats-login.conf'))
    await mkdir(join(overlay, 'nats-tls'))
    for (const name of ['ca.crt', 'tls.crt', 'tls.key'])
      await writeFile(join(overlay, 'nats-tls', name), name)
    await writeFile(join(overlay, 'releases.json'), '{}')
    const text = execFileSync('kubectl', ['kustomize', overlay], { encoding: 'utf8' })
    built = parseAllDocuments(text).map((document) => document.toJS())
  })

  it('the example that kustomize builds is valid', () => {
    expect(built.length).toBe(manifests.length + GENERATED.length)
    expect(
      built.map(({ kind, metadata }) => `${kind} ${metadata.name.replace(/-[a-z0-9]{10}$/, '')}`),
    ).toEqual(expect.arrayContaining(GENERATED))
    expect(built.flatMap(faultsOf)).toEqual([])
  })

  it('the built example has its image by a digest and the settings and secrets that its pods name', () => {
    const pods = built.filter(({ kind }) => ['Deployment', 'Job'].includes(kind))
    const names = built.map(({ kind, metadata }) => `${kind} ${metadata.name}`)
    expect(pods).toHaveLength(3)
    for (const { spec } of pods) {
      const [container] = spec.template.spec.containers
      expect(container.image).toMatch(/@sha256:[0-9a-f]{64}$/)
      for (const { configMapRef } of container.envFrom ?? [])
        expect(names).toContain(`ConfigMap ${configMapRef.name}`)
      const secrets = spec.template.spec.volumes.filter(({ secret }: Manifest) => secret)
      expect(secrets.length).toBeGreaterThan(0)
      for (const { secret } of secrets) expect(names).toContain(`Secret ${secret.secretName}`)
      for (const { configMap: mounted } of spec.template.spec.volumes)
        if (mounted) expect(names).toContain(`ConfigMap ${mounted.name}`)
    }
  })
})
