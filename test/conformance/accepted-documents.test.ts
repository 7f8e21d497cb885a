import { judgePublished } from '../attestation/judge-published.ts'

judgePublished(/^document\/(accepted|crl)\//, 60)
