import { readFile } from 'node:fs/promises'
import { decodeBase64 } from '#attestation/bytes.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import type { ConnectOptions, Policy } from '#client/index.ts'
import type { SourceMeasurements } from '#src/local/nsm/measured-source.ts'
import type { SharedAffidavit } from './use-affidavit.ts'

/** What a client expects of a service that a test started, and what forgers need to imitate it. */
export type ExpectedService = {
  readonly connect: Pick<ConnectOptions, 'policy'>
  readonly boot: JsonObject
  readonly measurements: SourceMeasurements
}

/** Believes what the service says about itself. */
export async function readExpectedService({
  url,
  policyFile,
}: Pick<SharedAffidavit, 'url' | 'policyFile'>): Promise<ExpectedService> {
  const reply = (await (await fetch(`${url}/v1/attestation`)).json()) as {
    readonly attestation: string
    readonly boot_configuration: JsonObject
  }
  const { pcrs } = decodeAttestationPayload(decodeBase64(reply.attestation))
  const registerOf = (index: number) => pcrs.get(index) ?? new Uint8Array()
  const policy = JSON.parse(await readFile(policyFile, 'utf8')) as Policy
  return {
    connect: { policy },
    boot: reply.boot_configuration,
    measurements: { pcr0: registerOf(0), pcr1: registerOf(1), pcr2: registerOf(2) },
  }
}
