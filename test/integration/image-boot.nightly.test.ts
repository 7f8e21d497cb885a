import { once } from 'node:events'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { MEMORY_MEBIBYTES } from '#enclave/image/boot/boot-enclave.ts'
import type { Machine } from '#enclave/image/boot/machine.ts'
import {
  type BootStage,
  completeChat,
  expectImage,
  type FirstCompletion,
  startStage,
  verifyFirstCompletion,
} from '#enclave/image/boot/run-boot.ts'
import { sealImage } from '#enclave/image/eif.ts'
import { bootWithScript, needBoot } from '../support/image-boot.ts'
import { isAlive } from '../support/is-alive.ts'
import { runCli } from '../support/run-cli.ts'

const BOOT = await needBoot()
const BOOT_TIMEOUT_MS = 420_000
/** Time from the death of a part to the end of the machine. */
const END_TIMEOUT_MS = 60_000

describe.runIf(BOOT.isMet)(BOOT.title('a development image in qemu'), () => {
  let folder: string
  let stage: BootStage
  let first: FirstCompletion
  let policy: BundlePolicy

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'affidavit-boot-'))
    stage = await startStage({ folder, accelerator: 'tcg', packagesFolder: null })
    first = await verifyFirstCompletion(stage)
    const { image, enclave } = stage
    policy = await expectImage({ ...enclave, release: image.release })
  }, BOOT_TIMEOUT_MS)
  afterAll(async () => {
    await stage?.stop()
    await rm(folder, { recursive: true, force: true })
  }, END_TIMEOUT_MS)

  it('the booted image makes a verified completion, whose evidence passes every check against it', () => {
    const { startedAtMs, kernelAtMs } = stage.enclave.machine
    const since = (atMs: number) => ((atMs - startedAtMs) / 1000).toFixed(1)
    console.info(
      `qemu (tcg): kernel ${since(kernelAtMs)} s, enclave ready ${since(stage.enclave.readyAtMs)} s, first verified completion ${since(first.answeredAtMs)} s after its start`,
    )
    expect(first.report.verdict).toBe('verified')
    const shown = first.report.facts?.measurements
    const { measurements } = stage.image
    expect([0, 1, 2].map((index) => encodeHex(shown?.get(index) ?? new Uint8Array()))).toEqual([
      measurements[0],
      measurements[1],
      measurements[2],
    ])
  })

  it('the booted image is accepted by the command line with the published measurements, and no others', async () => {
    const file = join(folder, 'bundle.json')
    await writeFile(file, JSON.stringify(first.bundle))
    const verify = (pcr2: string) =>
      runCli([
        'verify',
        file,
        '--root',
        stage.enclave.rootFile,
        '--pcr',
        `0=${stage.image.measurements[0]}`,
        '--pcr',
        `2=${pcr2}`,
      ])
    expect(await verify(stage.image.measurements[2])).toMatchObject({ code: 0 })
    expect(await verify(await measureChanged(stage))).toMatchObject({
      code: 1,
      stdout: expect.stringContaining('measurement'),
    })
  })

  it('the booted image is refused with the measurements of an image in which one byte is another', async () => {
    const pcr2 = decodeHex(await measureChanged(stage))
    const report = await verifyBundle(first.bundle, {
      ...policy,
      measurements: [new Map([[2, pcr2]])],
    })
    expect(report.verdict).toBe('not_accepted')
    expect(
      report.checks.filter(({ outcome }) => outcome === 'failed').map(({ name }) => name),
    ).toEqual(['measurements'])
  })

  it('the booted image is refused under the root of another software NSM, and under that of AWS', async () => {
    for (const roots of [[new Uint8Array(32)], undefined]) {
      const { roots: _, ...rest } = policy
      const report = await verifyBundle(first.bundle, { ...rest, ...(roots ? { roots } : {}) })
      expect(report.verdict).toBe('not_accepted')
    }
  })

  it('the booted image makes further completions, several at once', async () => {
    const asked = ['one', 'two', 'three', 'four'].map((prompt) =>
      completeChat(stage.gateway, prompt),
    )
    expect(new Set(await Promise.all(asked)).size).toBe(4)
  })

  it('the booted image has a socket that this user alone may open', async () => {
    expect((await stat(stage.enclave.socketPath)).mode & 0o777).toBe(0o600)
  })

  it('the booted image leaves no machine when it is stopped', async () => {
    const { pid } = stage.enclave.machine
    expect(isAlive(pid)).toBe(true)
    await stage.stop()
    expect(isAlive(pid)).toBe(false)
  })

  describe('seen from inside', () => {
    let said: string
    let machine: Machine
    const neighbour = createServer((_, response) => response.end('reached'))

    beforeAll(async () => {
      neighbour.listen(0, '127.0.0.1')
      await once(neighbour, 'listening')
      const { port } = neighbour.address() as AddressInfo
      machine = await bootWithScript({
        eifPath: stage.image.eifPath,
        folder: join(folder, 'inside'),
        providerPort: port,
        // Takes the place of the driver's device, with the permissions of a driver that lets all
        // users in.
        prepare: 'busybox mknod -m 0666 /dev/nsm c 1 3',
        script: lookAround(port),
      })
      await machine.waitForLine(
        'the script to end',
        (line) => line === 'script: done',
        BOOT_TIMEOUT_MS,
      )
      said = machine.console()
    }, BOOT_TIMEOUT_MS)
    afterAll(async () => {
      await machine?.stop()
      neighbour.close()
    })

    it('the booted image reaches the provider that is allowed, and no other address or port', () => {
      expect(said).toContain('script: 10.0.2.100 8090 answers')
      const others = said.split('\n').filter((line) => /^script: [\d.]+ \d+ /.test(line))
      expect(others).toHaveLength(5)
      expect(others.filter((line) => line.endsWith(' answers'))).toHaveLength(1)
    })

    it('the booted image has a root that root itself cannot write', () => {
      expect(said).toContain('script: etc is read-only')
      expect(said).toContain('script: opt is read-only')
    })

    it('the booted image runs verifier and bridges without rights, each kind as a separate user', () => {
      const processes = said.split('\n').filter((line) => line.startsWith('script: process '))
      expect(processes.filter((line) => line.includes(' node '))).toHaveLength(1)
      expect(processes.filter((line) => line.includes(' socat ')).length).toBeGreaterThan(9)
      for (const line of processes) {
        const user = line.includes(' node ') ? '10001' : '10002'
        expect(line).toMatch(
          new RegExp(
            ` user ${user} group ${user} groups ${user} capabilities 0000000000000000 no-new-privileges 1$`,
          ),
        )
      }
    })

    it('the verifier and the bridges do not hold the pipe by which init learns that a part has ended', () => {
      expect(said).toMatch(/^script: init holds it: \d+$/m)
      expect(said).not.toMatch(/^script: (node|socat) holds it/m)
    })

    it('the booted image gives the security module to the verifier alone', () => {
      expect(said).toContain('script: nsm of user 10001, mode 600')
      expect(said).toContain('script: enclave can open nsm')
      expect(said).toContain('script: bridge cannot open nsm')
    })

    it("the bridges may open the verifier's socket, and may not list the folder that it is in", () => {
      expect(said).toContain('script: folder of user 10001, group 10002, mode 2710')
      expect(said).toContain('script: socket of user 10001, group 10002, mode 660')
      expect(said).toContain('script: bridge cannot list the folder')
    })

    it('the booted image gives the verifier two fifths of the memory there is as its heap', () => {
      const [, heap] = /enclave-init: the verifier has a heap of (\d+) MiB/.exec(said) ?? []
      expect(Number(heap)).toBeGreaterThan(200)
      expect(Number(heap)).toBeLessThan((MEMORY_MEBIBYTES * 2) / 5)
      expect(said).toContain(`script: node --max-old-space-size=${heap}`)
    })

    it('the booted image ends when the bridge of a provider dies', async () => {
      await Promise.race([machine.exited, expire(END_TIMEOUT_MS)])
      expect(machine.console()).toContain(
        'enclave-init: bridge of the demonstration ended with status 137',
      )
      expect(machine.console()).toContain('boot-init: the enclave ends')
      expect(isAlive(machine.pid)).toBe(false)
    })
  })

  it(
    'the booted image ends when the verifier dies, and does not start it again',
    async () => {
      const machine = await bootWithScript({
        eifPath: stage.image.eifPath,
        folder: join(folder, 'killed'),
        providerPort: 9,
        script:
          'until pid=$(busybox pidof node); do busybox sleep 1; done\nbusybox kill -9 "$pid"\n',
      })
      try {
        await Promise.race([machine.exited, expire(BOOT_TIMEOUT_MS / 2)])
        expect(machine.console()).toContain('enclave-init: verifier ended with status 137')
        expect(isAlive(machine.pid)).toBe(false)
      } finally {
        await machine.stop()
      }
    },
    BOOT_TIMEOUT_MS,
  )
})

/** Rejects after a time, so that a machine that does not end is reported. */
async function expire(timeoutMs: number): Promise<never> {
  await sleep(timeoutMs, undefined, { ref: false })
  throw new Error(`the machine did not end within ${timeoutMs} ms`)
}

/**
 * Looks around as root, in the sealed root of the enclave (/run/root), then kills the bridge of the
 * demonstration provider. `port` is an open port of the host, in case the guest can reach the host.
 */
function lookAround(port: number): string {
  const root = '/run/root'
  const probes = [
    '10.0.2.100 8090',
    '10.0.2.100 8091',
    `10.0.2.2 ${port}`,
    '10.0.2.3 53',
    '1.1.1.1 443',
  ]
  return `
until busybox pidof node && [ "$(busybox pidof socat | busybox wc -w)" -ge 11 ]; do busybox sleep 1; done >/dev/null
until [ -S ${root}/run/affidavit/enclave.sock ]; do busybox sleep 1; done
probe() {
    if echo | busybox nc -w 3 "$1" "$2" >/dev/null 2>&1; then echo "script: $1 $2 answers"; else echo "script: $1 $2 is silent"; fi
}
${probes.map((probe) => `probe ${probe}`).join('\n')}
for folder in etc opt; do
    busybox touch ${root}/$folder/x 2>/dev/null || echo "script: $folder is read-only"
done
field() { busybox awk -v name="$1:" '$1 == name { print $2 }' "/proc/$pid/status"; }
for program in node socat; do
    for pid in $(busybox pidof "$program"); do
        echo "script: process $program user $(field Uid) group $(field Gid) groups $(field Groups) capabilities $(field CapEff) no-new-privileges $(field NoNewPrivs)"
    done
done
echo "script: nsm of user $(busybox stat -c '%u, mode %a' /dev/nsm)"
echo "script: folder of user $(busybox stat -c '%u, group %g, mode %a' ${root}/run/affidavit)"
echo "script: socket of user $(busybox stat -c '%u, group %g, mode %a' ${root}/run/affidavit/enclave.sock)"
attempt() {
    user=$1
    what=$2
    shift 2
    can=cannot
    if busybox start-stop-daemon -S -q -c "$user:$user" -p /run/none -a /bin/busybox -- "$@" >/dev/null 2>&1; then can=can; fi
    echo "script: $user $can $what"
}
attempt enclave "open nsm" dd if=/dev/nsm of=/dev/null count=0
attempt bridge "open nsm" dd if=/dev/nsm of=/dev/null count=0
attempt bridge "list the folder" ls ${root}/run/affidavit
for pid in $(busybox pidof node); do
    echo "script: node $(busybox tr '\\0' '\\n' <"/proc/$pid/cmdline" | busybox grep max-old)"
done
for fd in /proc/[0-9]*/fd/*; do
    case $(busybox readlink "$fd") in
    */run/ended)
        pid=\${fd#/proc/}
        name=$(busybox cat "/proc/\${pid%%/*}/comm")
        case $name in node | socat) ;; *) name=init ;; esac
        echo "script: $name holds it: \${pid%%/*}"
        ;;
    esac
done
echo "script: done"
for pid in $(busybox pidof socat); do
    if busybox grep -q TCP4-LISTEN:8090 "/proc/$pid/cmdline"; then bridge=$pid; fi
done
busybox kill -9 "$bridge"
`
}

/** PCR2 of the image with one flipped bit in its application ramdisk. */
async function measureChanged({ image }: BootStage): Promise<string> {
  const [kernel, bootRamdisk, applicationRamdisk] = await Promise.all([
    readFile(image.kernelPath),
    readFile(image.bootRamdiskPath),
    readFile(image.applicationRamdiskPath),
  ])
  applicationRamdisk.writeUInt8(applicationRamdisk.readUInt8(1_000_000) ^ 1, 1_000_000)
  const parts = { kernel, bootRamdisk, applicationRamdisk, cmdline: image.cmdline, signer: null }
  const { measurements } = sealImage({
    ...parts,
    kernelVersion: '',
    version: '1',
    commit: '0'.repeat(40),
  })
  return measurements.PCR2
}
