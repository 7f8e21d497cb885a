import type { Command } from 'commander'
import { registerAttestation } from './attestation.ts'
import { registerAudit } from './audit.ts'
import { registerComplete } from './complete.ts'
import { registerEvidence } from './evidence.ts'
import { registerExpect } from './expect.ts'
import { registerMeasure } from './measure.ts'
import { registerProxy } from './proxy.ts'
import { registerRedact } from './redact.ts'
import { registerRelease } from './release.ts'
import { registerVerify } from './verify.ts'

/**
 * The commands of whoever checks evidence, and of whoever signs releases for them. They are all
 * that the package `affidavit` installs, so they bring no database, no server and no chain client.
 */
export const CHECKER_COMMANDS: readonly ((program: Command) => void)[] = [
  registerVerify,
  registerExpect,
  registerProxy,
  registerComplete,
  registerAudit,
  registerEvidence,
  registerRedact,
  registerAttestation,
  registerMeasure,
  registerRelease,
]
