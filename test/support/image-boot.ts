import { appendFile, mkdir } from 'node:fs/promises'
import { openBootFiles, padRamdisk, startImage } from '#enclave/image/boot/boot-enclave.ts'
import { type Machine, QEMU } from '#enclave/image/boot/machine.ts'
import { encodeCpio } from '#enclave/image/cpio.ts'
import { textFile } from '#enclave/image/file-tree.ts'
import { findImageHindrance } from './image-hindrance.ts'
import { type Need, needNo, needProgram } from './needs.ts'

/** What a test needs to build and boot an image. */
export async function needBoot(): Promise<Need> {
  const qemu = needProgram(QEMU)
  return qemu.isMet ? needNo(await findImageHindrance()) : qemu
}

/**
 * Boots an image with a script that runs as root beside everything else in the image, from one more
 * ramdisk: real images have no such way in. Both texts are for busybox sh: `prepare` ends before
 * the enclave begins, `script` runs at the same time. Their output is on the console.
 */
export async function bootWithScript(options: {
  readonly eifPath: string
  readonly folder: string
  readonly providerPort: number
  readonly prepare?: string
  readonly script: string
}): Promise<Machine> {
  const { eifPath, folder, providerPort, prepare = '', script } = options
  await mkdir(folder, { mode: 0o700 })
  const files = await openBootFiles(eifPath, folder)
  await appendFile(files.ramdiskPath, padRamdisk(encodeCpio(scriptRamdisk(prepare, script))))
  const { machine } = await startImage(files, { folder, accelerator: 'tcg', providerPort })
  return machine
}

function scriptRamdisk(prepare: string, script: string) {
  const runner = `#!/bin/busybox sh\n${prepare}\n/usr/sbin/beside-script &\nexec /usr/sbin/enclave-init\n`
  return new Map([
    ['cmd', textFile('/usr/sbin/beside\n')],
    ['rootfs/usr/sbin/beside', textFile(runner, 0o755)],
    ['rootfs/usr/sbin/beside-script', textFile(`#!/bin/busybox sh\n${script}`, 0o755)],
  ])
}
