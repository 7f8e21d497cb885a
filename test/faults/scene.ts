import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { startDeployment } from '../support/deployment/deployment.ts'
import type { Scene } from './faults.ts'
import { mountSmallDisk } from './small-disk.ts'

const DATABASE_DISK_MIB = 1_024
const GATEWAY_DISK_MIB = 24

/** Starts two gateways and two enclaves, with disks that can be filled where they can be made. */
export async function openScene(): Promise<Scene & { close(): Promise<void> }> {
  const database = await mountSmallDisk(DATABASE_DISK_MIB)
  const gateway = database === null ? null : await mountSmallDisk(GATEWAY_DISK_MIB)
  const disks = database === null || gateway === null ? null : { database, gateway }
  const databaseFolder = disks === null ? null : join(disks.database.path, 'postgres')
  if (databaseFolder !== null) await mkdir(databaseFolder)
  const deployment = await startDeployment({
    gateways: 2,
    enclaves: 2,
    ...(databaseFolder === null ? {} : { databaseFolder }),
  })
  return {
    deployment,
    disks,
    close: async () => {
      await deployment.stop()
      await disks?.database.remove()
      await disks?.gateway.remove()
    },
  }
}
