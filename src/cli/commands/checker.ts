import type { CommandGroups } from '../command-line.ts'
import type { OpenVerifier } from '../evidence/evidence-page.ts'
import { registerAttestation } from './attestation.ts'
import { registerAudit } from './audit.ts'
import { registerComplete } from './complete.ts'
import { registerEvidence } from './evidence.ts'
import { registerMeasure } from './measure.ts'
import { registerPolicy } from './policy.ts'
import { registerProvider } from './provider.ts'
import { registerProxy } from './proxy.ts'
import { registerRedact } from './redact.ts'
import { registerRelease } from './release.ts'
import { registerVerifier } from './verifier.ts'
import { registerVerify } from './verify.ts'

/**
 * The package `affidavit` has only these commands, so it loads no database, server or chain client.
 * `openVerifier` opens the page that this program saves.
 */
export function checkerCommands(openVerifier: OpenVerifier): CommandGroups {
  return {
    'Check evidence:': [
      registerVerify,
      registerPolicy,
      registerComplete,
      registerAudit,
      (program) => registerEvidence(program, openVerifier),
      registerRedact,
      registerAttestation,
      registerProvider,
      (program) => registerVerifier(program, openVerifier),
    ],
    'Call a gateway:': [registerProxy],
    'Sign releases:': [registerMeasure, registerRelease],
  }
}
