import { judgePublished } from '../attestation/judge-published.ts'

judgePublished(/^bundle\/(attestation-document|members|receipt-of)/, 70)
