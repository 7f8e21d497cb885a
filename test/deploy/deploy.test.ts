import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { chmod, cp, mkdir, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { listBridges } from '#enclave/image/settings.ts'
import { BUILT_IN_PROVIDERS } from '#enclave/providers/built-in-table.ts'
import { folderOfFile, folderOfTest } from '../support/folders.ts'
import { needProgram } from '../support/needs.ts'

const root = join(import.meta.dirname, '../..')
const units = join(root, 'deploy/systemd')
const read = (path: string) => readFileSync(join(root, path), 'utf8')
/** The part of compose.yaml that is the gateway's. */
const container = read('deploy/gateway/compose.yaml').split(/^ {2}(?=\S)/m)[1] ?? ''
const containerVariables = Object.fromEntries(
  [...container.matchAll(/^ {6}([A-Z_]+): "?(.*?)"?$/gm)]
    .map(([, name = '', value = '']) => [name, value] as const)
    .filter(([name]) => name !== 'NODE_IMAGE'),
)
const bridges = listBridges(BUILT_IN_PROVIDERS)

/** Read by the C library, not by the gateway. */
const GLIBC_SETTING = 'MALLOC_MMAP_THRESHOLD_'

describe('the proxies', () => {
  it('each host of the built-in table has one proxy, at the port that the image dials', () => {
    const files = readdirSync(join(units, 'proxies')).map((name) => [
      Number(name.replace('.env', '')),
      readFileSync(join(units, 'proxies', name), 'utf8'),
    ])
    expect(files).toEqual(
      bridges.map(({ vsockPort, host, port }) => [vsockPort, `HOST=${host}\nPORT=${port}\n`]),
    )
  })

  it('the proxies may reach the hosts of the built-in table and no others', () => {
    const lines = read('deploy/systemd/vsock-proxy.yaml').match(/^ {2}- .*$/gm)
    expect(lines).toEqual(
      bridges.map(({ host, port }) => `  - { address: ${host}, port: ${port} }`),
    )
  })
})

describe('the variables of the gateway', () => {
  it('the example settings let no account read what others asked', () => {
    expect(read('deploy/gateway/gateway.env.example')).toMatch(/^HISTORY_ALL=false$/m)
  })

  it('the gateway and the agent know every variable that the deployment sets', () => {
    const known = [
      'src/config.ts',
      ...['chain', 'enclaves', 'storage', 'upstream'].map((room) => `src/${room}/settings.ts`),
      'src/agent/config.ts',
    ]
      .filter((path) => existsSync(join(root, path)))
      .map(read)
      .join('')
    const given = [
      ...(read('deploy/gateway/gateway.env.example').match(/^[A-Z_]+(?==)/gm) ?? []),
      ...(read('deploy/systemd/affidavit-gateway.service').match(/(?<=^Environment=)[A-Z_]+/gm) ??
        []),
      ...Object.keys(containerVariables),
      ...readdirSync(units)
        .filter((name) => name.endsWith('.service.d'))
        .flatMap(
          (name) =>
            read(`deploy/systemd/${name}/secrets.conf`).match(/(?<=^Environment=)[A-Z_]+/gm) ?? [],
        ),
    ].map((name) => name.replace(/(?<=URL|KEY)_FILE$/, ''))
    expect(given.length).toBeGreaterThan(8)
    const unknown = given.filter((name) => !new RegExp(`^ +${name}: `, 'm').test(known))
    expect(unknown.filter((name) => name !== GLIBC_SETTING)).toEqual([])
  })
})

describe('secrets in files', () => {
  it.each(['gateway', 'agent'])(
    'systemd hands secrets to the %s, each from its own file to where its variable says',
    (part) => {
      const conf = read(`deploy/systemd/affidavit-${part}.service.d/secrets.conf`)
      const loaded = [...conf.matchAll(/^LoadCredential=([\w-]+):(\S+)$/gm)]
      const named = [...conf.matchAll(/^Environment=[A-Z_]+_FILE=%d\/([\w-]+)$/gm)]
      expect(loaded.length).toBeGreaterThan(0)
      expect(named.map(([, name]) => name)).toEqual(loaded.map(([, name]) => name))
      for (const [, name, path] of loaded) expect(path).toBe(`/etc/affidavit/secrets/${name}`)
    },
  )

  it('secrets are mounted in containers where the variables say, and are in no environment', () => {
    const { services, secrets } = parse(read('deploy/gateway/compose.yaml'))
    const used = Object.values<{ environment: Record<string, string>; secrets: string[] }>(services)
    for (const { environment, secrets: mounted } of used) {
      const files = Object.entries(environment).filter(([, value]) =>
        value.startsWith('/run/secrets/'),
      )
      expect(files.map(([, path]) => path.replace('/run/secrets/', ''))).toEqual(mounted)
      for (const [name, value] of Object.entries(environment))
        if (/KEY|URL|PASSWORD|TOKEN/.test(name))
          expect([name, value]).toEqual([
            expect.stringMatching(/_FILE$/),
            expect.stringMatching(/^\/run\/secrets\//),
          ])
    }
    expect(Object.keys(secrets).toSorted()).toEqual(
      used.flatMap((service) => service.secrets).toSorted(),
    )
  })
})

describe('container images', () => {
  it('container images are named by the operator, and none has a default', () => {
    const dockerfile = read('deploy/gateway/Dockerfile')
    const bases = dockerfile.match(/^FROM .*$/gm) ?? []
    expect(bases).toHaveLength(2)
    for (const base of bases) expect(base).toMatch(/^FROM \$\{NODE_IMAGE\}( AS build)?$/)
    expect(dockerfile.match(/^ARG .*$/gm)).toEqual([
      'ARG NODE_IMAGE',
      'ARG NODE_IMAGE',
      'ARG COMMIT',
    ])
    expect(read('deploy/gateway/compose.yaml')).toMatch(/image: \$\{POSTGRES_IMAGE:\?/)
  })

  it('the volume of the database is where its variable says, outside the volumes of all images', () => {
    const { environment, volumes } = parse(read('deploy/gateway/compose.yaml')).services.database
    // From 18 on, the image refuses a volume at /var/lib/postgresql/data. Earlier images place an
    // anonymous volume there, which hides that part of a volume at /var/lib/postgresql.
    expect(environment.PGDATA).not.toMatch(/^\/var\/lib\/postgresql/)
    expect(volumes).toEqual([`database:${environment.PGDATA}`])
  })

  it('the image takes every folder that the gateway runs from', () => {
    const copied = read('deploy/gateway/Dockerfile').match(/(?<=^COPY )\S+(?= \S+$)/gm)
    const allowed = read('deploy/gateway/Dockerfile.dockerignore').match(/(?<=^!).*$/gm)
    const folders = ['attestation', 'audit', 'client', 'enclave/protocol', 'migrations', 'src']
    expect(copied).toEqual(expect.arrayContaining(folders))
    expect(allowed).toEqual(
      expect.arrayContaining([...folders, 'package.json', 'package-lock.json']),
    )
  })

  it('the image has every file that gateway, agent and command line load', async () => {
    const image = folderOfTest()
    const copied = read('deploy/gateway/Dockerfile').match(/(?<=^COPY )\S+(?= \S+$)/gm) ?? []
    for (const folder of copied.filter((path) => existsSync(join(root, path))))
      await cp(join(root, folder), join(image, folder), { recursive: true })
    await cp(join(root, 'package.json'), join(image, 'package.json'))
    await symlink(join(root, 'node_modules'), join(image, 'node_modules'))
    const commands = readdirSync(join(image, 'src/cli/commands')).filter((name) =>
      /\.ts$/.test(name),
    )
    const files = [
      'compose.ts',
      'agent/run-agent.ts',
      ...commands.map((name) => `cli/commands/${name}`),
    ]
    const load = `for (const file of ${JSON.stringify(files)}) await import('./src/' + file)`
    const words = ['--input-type=module', '--eval', `${load}; console.log('loaded')`]
    expect(execFileSync(process.execPath, words, { cwd: image, encoding: 'utf8' })).toBe('loaded\n')
  })
})

describe('the gateway in a container', () => {
  it('the gateway in a container is published on the loopback of its host alone, metrics too', () => {
    const ports = container.match(/(?<=^ {6}- )\S+:\d+:\d+$/gm)
    expect(ports).toEqual(['127.0.0.1:3000:3000', '127.0.0.1:9464:9464'])
    // Inside, what is published has to be listened on beyond the container's own loopback.
    expect(containerVariables).toMatchObject({ METRICS_HOST: '0.0.0.0', METRICS_PORT: '9464' })
    expect(read('deploy/gateway/Dockerfile')).toMatch(/^ENV .*HOST=0\.0\.0\.0/m)
  })

  it('the gateway in a container has a control socket in a folder that only its user may enter', () => {
    const socket = containerVariables.CONTROL_SOCKET ?? ''
    const user = container.match(/^ {4}user: "(\d+):(\d+)"$/m)
    expect(container).toContain(
      `- ${dirname(socket)}:mode=0700,uid=${user?.[1]},gid=${user?.[2]}\n`,
    )
    expect(read('deploy/systemd/affidavit-gateway.service')).toContain(`CONTROL_SOCKET=${socket}\n`)
  })
})

const ANALYZER = needProgram('systemd-analyze')

describe('the systemd units', () => {
  const sandbox = folderOfFile()
  beforeAll(async () => {
    // A root of its own, with the programs that the units start: the programs of this
    // machine take no part.
    await mkdir(join(sandbox, 'etc/systemd'), { recursive: true })
    await cp(units, join(sandbox, 'etc/systemd/system'), { recursive: true })
    await cp('/usr/lib/systemd/system', join(sandbox, 'usr/lib/systemd/system'), {
      recursive: true,
    }).catch(() => undefined)
    for (const program of [
      'usr/bin/nitro-cli',
      'usr/bin/socat',
      'usr/bin/vsock-proxy',
      'usr/bin/node',
      'bin/kill',
    ])
      await saveProgram(program)
  })

  async function saveProgram(path: string): Promise<void> {
    await mkdir(join(sandbox, path, '..'), { recursive: true })
    await writeFile(join(sandbox, path), '#!/bin/sh\n')
    await chmod(join(sandbox, path), 0o755)
  }

  const verify = (unit: string) => {
    const words = ['verify', '--man=no', `--root=${sandbox}`, unit]
    return execFileSync('systemd-analyze', words, {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    })
  }

  const UNITS = [
    'affidavit-enclave@16.service',
    'affidavit-enclave-bridge@16.service',
    'affidavit-vsock-proxy@8002.service',
    'affidavit-proxies.target',
    'affidavit-gateway.service',
    'affidavit-agent.service',
  ]

  it.runIf(ANALYZER.isMet).each(UNITS)(
    ANALYZER.title('systemd reads the unit %s without a complaint'),
    (unit) => {
      expect(verify(unit)).toBe('')
    },
  )

  it.each(['gateway', 'agent'])('systemd always restarts the %s and bounds its memory', (name) => {
    const lines = read(`deploy/systemd/affidavit-${name}.service`).split('\n')
    expect(lines).toContain('StartLimitIntervalSec=0')
    expect(lines).toContain('Restart=always')
    expect(lines.filter((line) => /^MemoryMax=\d+[MG]$/.test(line))).toHaveLength(1)
    expect(lines).toContain(`EnvironmentFile=/etc/affidavit/${name}.env`)
  })

  it('the example settings of an agent have no secret, and only variables that the agent knows', () => {
    const names = read('deploy/agent/agent.env.example').match(/^#?[A-Z_]+(?==$)/gm) ?? []
    expect(names).toHaveLength(4)
    for (const name of names)
      expect(read('src/agent/config.ts')).toMatch(new RegExp(`^ +${name.replace('#', '')}: `, 'm'))
  })

  it('every systemd service runs without capabilities and new privileges, on a read-only system', () => {
    const services = readdirSync(units).filter((name) => name.endsWith('.service'))
    expect(services).toHaveLength(5)
    for (const name of services) {
      const text = readFileSync(join(units, name), 'utf8')
      for (const line of [
        'NoNewPrivileges=yes',
        'CapabilityBoundingSet=',
        'ProtectSystem=strict',
        'ProtectHome=yes',
      ])
        expect(text.split('\n'), name).toContain(line)
      expect(text, name).toMatch(/^(User=affidavit|DynamicUser=yes)/m)
    }
  })
})
