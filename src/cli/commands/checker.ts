import type { CommandGroups } from '../command-line.ts'
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
 * The commands for checkers of evidence, for callers, and for those who sign releases. They are all
 * that the package `affidavit` installs, so they bring no database, no server and no chain client.
 */
export const CHECKER_COMMANDS: CommandGroups = {
  'Check evidence:': [
    registerVerify,
    registerExpect,
    registerComplete,
    registerAudit,
    registerEvidence,
    registerRedact,
    registerAttestation,
  ],
  'Call a gateway:': [registerProxy],
  'Sign releases:': [registerMeasure, registerRelease],
}
